"""Kafka's hash of keys, many at a time. Runs in Spark's Python workers, where this package may not be installed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SEED, M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)


def murmur2(keys: pa.Array) -> np.ndarray:
    """Kafka's hash of each key, as the Java client has it.

    Args:
        keys: BINARY, none of them null.
    """
    hashes = np.empty(len(keys), np.uint32)
    if not len(keys):
        return hashes.view(np.int32)
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    # Keys of one length are one table: its columns are worked through, whatever the number of rows.
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _murmur2(data[offsets[rows][:, None] + np.arange(length)], int(length))
    return hashes.view(np.int32)


def _murmur2(data: np.ndarray, length: int) -> np.ndarray:
    whole = length & ~3
    words = np.ascontiguousarray(data[:, :whole]).view("<u4")
    hashes = np.full(len(data), SEED ^ np.uint32(length), np.uint32)
    for column in range(whole // 4):
        word = words[:, column] * M
        word ^= word >> np.uint32(24)
        hashes = hashes * M ^ word * M
    for place in range(length - whole - 1, -1, -1):
        hashes ^= data[:, whole + place].astype(np.uint32) << np.uint32(8 * place)
    if length > whole:
        hashes *= M
    hashes ^= hashes >> np.uint32(13)
    hashes *= M
    return hashes ^ hashes >> np.uint32(15)
