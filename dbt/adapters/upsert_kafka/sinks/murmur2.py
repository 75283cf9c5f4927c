"""Kafka's hash of keys (murmur2), vectorised. Runs in Spark's Python workers: it imports no other module of this package."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SEED, M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)


def murmur2(keys: pa.Array) -> np.ndarray:
    """The hash of each key, equal to `Utils.murmur2` of the Java client.

    Args:
        keys: BINARY without nulls.

    >>> murmur2(pa.array([b"foobar", b"21"], pa.binary())).tolist()
    [-790332482, -973932308]
    """
    hashes = np.empty(len(keys), np.uint32)
    if not len(keys):
        return hashes.view(np.int32)
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    # Keys of equal length form a matrix, so each step of the hash is one operation for all of them.
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _murmur2(data[offsets[rows][:, None] + np.arange(length)], int(length))
    return hashes.view(np.int32)


def _murmur2(data: np.ndarray, length: int) -> np.ndarray:
    """The hash of each row of a matrix of bytes: words of four bytes first, then the remaining bytes."""
    whole = length & ~3
    words = np.ascontiguousarray(data[:, :whole]).view("<u4")
    hashes = np.full(len(data), SEED ^ np.uint32(length), np.uint32)
    for column in range(whole // 4):
        word = words[:, column] * M
        word ^= word >> np.uint32(24)
        hashes = hashes * M ^ word * M
    for position in range(length - whole - 1, -1, -1):
        hashes ^= data[:, whole + position].astype(np.uint32) << np.uint32(8 * position)
    if length > whole:
        hashes *= M
    hashes ^= hashes >> np.uint32(13)
    hashes *= M
    return hashes ^ hashes >> np.uint32(15)
