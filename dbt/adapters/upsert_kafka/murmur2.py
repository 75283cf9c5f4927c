"""Kafka's hash of keys, many at a time. Runs in Spark's Python workers, where this package may not be installed."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np
from pyspark import cloudpickle

SEED, M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)

# A cluster's workers need not have this package.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def murmur2(keys: Iterable[bytes]) -> np.ndarray:
    """Kafka's hash of each key, as the Java client has it."""
    items = list(keys)
    lengths = np.fromiter(map(len, items), np.int64, len(items))
    order = np.argsort(lengths, kind="stable")
    data = np.frombuffer(b"".join([items[i] for i in order]), np.uint8)
    hashes = np.empty(len(items), np.uint32)
    start = 0
    # Keys of one length are one table: its columns are worked through, whatever the number of rows.
    for length, count in zip(*np.unique(lengths, return_counts=True), strict=True):
        rows = order[:count]
        order = order[count:]
        hashes[rows] = _murmur2(data[start : start + length * count].reshape(count, length), int(length))
        start += length * count
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
