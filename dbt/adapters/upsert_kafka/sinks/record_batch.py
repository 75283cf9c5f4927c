"""Columns of Arrow to one Kafka record batch (format v2), without a line of Python per record.

Runs in Spark's Python workers, where this package may not be installed: it imports nothing of its neighbours.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from zlib import compressobj

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from kafka.record.util import calc_crc32c

HEADER = ">qiibIhiqqqhii"
HEADER_BYTES = struct.calcsize(HEADER)
AFTER_LENGTH, AFTER_CRC, PRODUCER = 12, 21, 43
NOBODY = (-1, -1, -1)
MAGIC, TRANSACTIONAL = 2, 0x10
SMALL = 1 << 15
MOST_OVERHEAD = 40
"""Bytes that a record has beside key, value and headers, at most."""


_ZERO = pa.scalar(b"\0", pa.binary())
"""No attributes, no time since the first record, no headers."""


@dataclass(frozen=True)
class Identity:
    """Who writes: what the transaction's coordinator gave out."""

    transactional_id: str
    producer_id: int
    epoch: int


class Encoder:
    """Builds the batches of a transaction, to be stamped by who writes them.

    Args:
        compression: Kafka's name of it.
    """

    def __init__(self, compression: str) -> None:
        self._codec, self._compress = CODECS[compression]
        self._varints = _Varints()

    def encode(self, timestamps: int | pa.Array, keys: pa.Array, values: pa.Array, headers: pa.Array | None = None) -> bytes:
        """Build a transactional batch of nobody's.

        Args:
            timestamps: milliseconds, one for all records or one for each.
            keys, values: BINARY, null allowed.
            headers: list of struct of key and value, or None.
        """
        count = len(keys)
        if isinstance(timestamps, int):
            first_time = last_time = timestamps
            times, times_width = _ZERO, np.ones(count, np.int64)
        else:
            milliseconds = timestamps.to_numpy(zero_copy_only=False).astype(np.int64)
            first_time, last_time = int(milliseconds[0]), int(milliseconds.max())
            times, times_width = _varints(milliseconds - first_time)
        key_bytes, value_bytes = _lengths(keys), _lengths(values)
        offsets, offsets_width = self._varints(np.arange(count))
        key_length, key_width = self._varints(key_bytes)
        value_length, value_width = self._varints(value_bytes)
        tail = _ZERO if headers is None else _headers(headers)
        length, _ = self._varints(
            1 + times_width + offsets_width
            + key_width + np.maximum(key_bytes, 0)
            + value_width + np.maximum(value_bytes, 0)
            + (1 if headers is None else _lengths(tail))
        )  # fmt: skip
        body = _bytes(_join(length, _ZERO, times, offsets, key_length, keys, value_length, values, tail))
        codec, compressed = self._codec, self._compress(body)
        if len(compressed) < len(body):
            body = compressed
        else:
            codec = 0
        header = struct.pack(
            HEADER,
            0, HEADER_BYTES + len(body) - AFTER_LENGTH, -1, MAGIC, 0, codec | TRANSACTIONAL, count - 1, first_time, last_time,
            *NOBODY, count,
        )  # fmt: skip
        return header + body


def stamp(batch: bytes | pa.Buffer, identity: Identity, sequence: int) -> bytes:
    """Make a batch that of a producer.

    Args:
        sequence: of the first record in its partition.
    """
    stamped = bytearray(batch)
    struct.pack_into(">qhi", stamped, PRODUCER, identity.producer_id, identity.epoch, sequence)
    struct.pack_into(">I", stamped, AFTER_CRC - 4, calc_crc32c(memoryview(stamped)[AFTER_CRC:]))
    return bytes(stamped)


class _Varints:
    """As `_varints`, but small numbers, which nearly all are, are looked up."""

    def __init__(self) -> None:
        self._encoded, self._width = _varints(np.arange(-1, SMALL))

    def __call__(self, numbers: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        if numbers.max() >= SMALL:
            return _varints(numbers)
        place = (numbers + 1).astype(np.int32)
        return self._encoded.take(pa.array(place)), self._width[place]


def split(sizes: np.ndarray, limit: int) -> Iterator[tuple[int, int]]:
    """Cut records into ranges of at most `limit` bytes."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        base = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, base + limit, "right")))
        yield start, end
        start = end


def sizes(keys: pa.Array, values: pa.Array, headers: pa.Array | None = None) -> np.ndarray:
    """Bytes of each record, rounded up."""
    total = _lengths(keys) + _lengths(values) + MOST_OVERHEAD
    return total if headers is None else total + _lengths(_headers(headers))


def _lengths(data: pa.Array) -> np.ndarray:
    """Bytes of each item, -1 where there is none: what stands before a key or a value."""
    return pc.fill_null(pc.binary_length(data), -1).to_numpy(zero_copy_only=False).astype(np.int64)


def _varints(numbers: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """Each number zigzag encoded in as few bytes as it takes, and how many that are."""
    zigzag = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    width = np.ones(len(numbers), np.int64)
    most = 1
    while len(zigzag) and (longer := zigzag >= np.uint64(1) << np.uint64(7 * most)).any():
        width += longer
        most += 1
        if most == 10:
            break
    shifts = np.arange(most, dtype=np.uint64) * np.uint64(7)
    septets = ((zigzag[:, None] >> shifts) & np.uint64(0x7F)).astype(np.uint8)
    place = np.arange(most)
    septets[place < width[:, None] - 1] |= 0x80
    data = septets[place < width[:, None]]
    return _binary(np.concatenate(([0], np.cumsum(width))), pa.py_buffer(data)), width


def _headers(headers: pa.Array) -> pa.Array:
    """The count of a record's headers and the headers themselves, as one BINARY for each record."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = headers.flatten()
    names, contents = flat.field(0).cast(pa.binary()), flat.field(1)
    each = _join(_varints(_lengths(names))[0], names, _varints(_lengths(contents))[0], contents)
    # Headers of one record lie side by side, so its bytes are one slice of them all.
    ends = np.concatenate(([0], np.cumsum(_lengths(each))))[np.concatenate(([0], np.cumsum(counts)))]
    return _join(_varints(counts)[0], _binary(ends, pa.py_buffer(_bytes(each))))


def _join(*pieces: pa.Array | pa.Scalar) -> pa.Array:
    """Row by row, one piece after the other; null is nothing."""
    return pc.binary_join_element_wise(*pieces, b"", null_handling="replace", null_replacement=b"")


def _binary(offsets: np.ndarray, data: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.astype(np.int32)), data])


def _bytes(data: pa.Array) -> bytes:
    """All items one after the other."""
    if not len(data):
        return b""
    offsets = np.frombuffer(data.buffers()[1], np.int32)[data.offset : data.offset + len(data) + 1]
    return data.buffers()[2][offsets[0] : offsets[-1]].to_pybytes()


def _gzip(data: bytes) -> bytes:
    stream = compressobj(wbits=31)
    return stream.compress(data) + stream.flush()


def _lz4(data: bytes) -> bytes:
    """A frame of independent blocks of 64 KiB, as Kafka's readers want it; the constant is its header with checksum."""
    codec = pa.Codec("lz4_raw")
    frame = [b"\x04\x22\x4d\x18\x60\x40\x82"]
    for start in range(0, len(data), 1 << 16):
        block = data[start : start + (1 << 16)]
        packed = codec.compress(block, asbytes=True)
        if len(packed) < len(block):
            frame += [struct.pack("<I", len(packed)), packed]
        else:
            frame += [struct.pack("<I", len(block) | 1 << 31), block]
    return b"".join([*frame, b"\0\0\0\0"])


def _snappy(data: bytes) -> bytes:
    """Blocks with their lengths behind the header of snappy-java, as Kafka's readers want it."""
    codec = pa.Codec("snappy")
    blocks = [codec.compress(data[start : start + (1 << 15)], asbytes=True) for start in range(0, len(data), 1 << 15)]
    return b"".join([b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01", *(struct.pack(">I", len(block)) + block for block in blocks)])


def _zstd(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (0, lambda data: data),
    "gzip": (1, _gzip),
    "snappy": (2, _snappy),
    "lz4": (3, _lz4),
    "zstd": (4, _zstd),
}
