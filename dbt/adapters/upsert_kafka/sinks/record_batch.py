"""Turns Arrow columns into a Kafka record batch (format v2), vectorised: no Python code runs per record.

A batch is a header and its records, one after the other. The fields of a record are, in this order:

    length           varint   bytes after this field
    attributes       1 byte   always 0
    timestamp delta  varint   milliseconds since the batch's first timestamp
    offset delta     varint   0, 1, 2, ... in the batch
    key              varint   length, -1 for null, then the bytes
    value            varint   length, -1 for null, then the bytes
    headers          varint   count, then for each header its key and value in the same form

Each field is computed as one column of bytes for all records; `_join` puts the columns together row by row. The module runs in
Spark's Python workers, where this package may not be installed: it imports no other module of it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from zlib import compressobj

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

HEADER = ">qiibIhiqqqhii"
HEADER_BYTES = struct.calcsize(HEADER)
AFTER_LENGTH, AFTER_CRC, PRODUCER_FIELDS = 12, 21, 43
"""Positions in the header. The length counts bytes after itself; the CRC covers the bytes after itself."""
NO_PRODUCER = (-1, -1, -1)
NOT_COMPRESSED = 0
MAGIC, TRANSACTIONAL = 2, 0x10
MAX_RECORD_OVERHEAD = 40
"""Bytes of a record besides key, value and headers, at most."""

_ZERO = pa.scalar(b"\0", pa.binary())
"""One byte for a field that is 0 in every record: attributes, timestamp delta, number of headers."""


@dataclass(frozen=True)
class Producer:
    """Who writes: the producer id and epoch that the coordinator assigned to a transactional id."""

    transactional_id: str
    """Empty for a producer that writes outside of transactions."""
    producer_id: int
    epoch: int


class Encoder:
    """Builds the batches of a transaction. `stamp` adds the producer before a batch is written.

    Args:
        compression: Kafka's compression.type.
    """

    def __init__(self, compression: str) -> None:
        self._codec, self._compress = CODECS[compression]
        self._varints = _VarintTable()

    def encode(self, timestamps: int | pa.Array, keys: pa.Array, values: pa.Array, headers: pa.Array | None = None) -> bytes:
        """Build one batch.

        Args:
            timestamps: milliseconds, one for all records or one for each.
            keys, values: BINARY, null allowed.
            headers: list of struct of key and value, or None.
        """
        count = len(keys)
        if isinstance(timestamps, int):
            first_time = last_time = timestamps
            deltas = Varints(_ZERO, np.ones(count, np.int64))
        else:
            milliseconds = timestamps.to_numpy(zero_copy_only=False).astype(np.int64)
            first_time, last_time = int(milliseconds[0]), int(milliseconds.max())
            deltas = varints(milliseconds - first_time)
        records = _concatenate(self._records(deltas, keys, values, headers))
        codec, body = self._codec, self._compress(records)
        if len(body) >= len(records):
            codec, body = NOT_COMPRESSED, records
        header = struct.pack(
            HEADER,
            0, HEADER_BYTES + len(body) - AFTER_LENGTH, -1, MAGIC, 0, codec | TRANSACTIONAL, count - 1, first_time, last_time,
            *NO_PRODUCER, count,
        )  # fmt: skip
        return header + body

    def _records(self, deltas: Varints, keys: pa.Array, values: pa.Array, headers: pa.Array | None) -> pa.Array:
        """The bytes of each record."""
        key_bytes, value_bytes = _lengths(keys), _lengths(values)
        offsets = self._varints(np.arange(len(keys)))
        key_lengths, value_lengths = self._varints(key_bytes), self._varints(value_bytes)
        tail = _ZERO if headers is None else _headers(headers)
        # A null key or value has the length -1 and no bytes.
        lengths = self._varints(
            1 + deltas.sizes + offsets.sizes
            + key_lengths.sizes + np.maximum(key_bytes, 0)
            + value_lengths.sizes + np.maximum(value_bytes, 0)
            + (1 if headers is None else _lengths(tail))
        )  # fmt: skip
        return _join(
            lengths.encoded,
            _ZERO,
            deltas.encoded,
            offsets.encoded,
            key_lengths.encoded,
            keys,
            value_lengths.encoded,
            values,
            tail,
        )


def stamp(batch: bytes | pa.Buffer, producer: Producer, sequence: int) -> bytes:
    """Write the producer into the header of a batch, and the CRC.

    Args:
        sequence: number of the batch's first record among those that the producer writes to the partition.
    """
    stamped = bytearray(batch)
    if not producer.transactional_id:
        stamped[AFTER_CRC + 1] &= ~TRANSACTIONAL
    struct.pack_into(">qhi", stamped, PRODUCER_FIELDS, producer.producer_id, producer.epoch, sequence)
    struct.pack_into(">I", stamped, AFTER_CRC - 4, crc32c(memoryview(stamped)[AFTER_CRC:]))
    return bytes(stamped)


def split(sizes: np.ndarray, limit: int) -> Iterator[tuple[int, int]]:
    """Divide records into consecutive ranges of at most `limit` bytes. A larger record gets a range of its own.

    >>> list(split(np.array([30, 30, 40, 90, 500]), limit=100))
    [(0, 3), (3, 4), (4, 5)]
    """
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        base = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, base + limit, "right")))
        yield start, end
        start = end


def sizes(keys: pa.Array, values: pa.Array, headers: pa.Array | None = None) -> np.ndarray:
    """Bytes of each record, at most."""
    total = _lengths(keys) + _lengths(values) + MAX_RECORD_OVERHEAD
    return total if headers is None else total + _lengths(_headers(headers))


class Varints(NamedTuple):
    """Encoded numbers."""

    encoded: pa.Array | pa.Scalar
    """BINARY, one for each number."""
    sizes: np.ndarray
    """Bytes of each."""


MAX_VARINT_BYTES = 10
_LARGER = np.array([1 << 7 * size for size in range(1, MAX_VARINT_BYTES)], np.uint64)
"""The smallest zigzag number that does not fit into one byte, into two bytes, and so on."""


def varints(numbers: np.ndarray) -> Varints:
    """Encode each number as a varint, as Kafka and Protocol Buffers do.

    1. Zigzag makes small numbers of both signs small: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
    2. The zigzag number is cut into groups of seven bits, lowest first, as many as it needs.
    3. Each group is a byte. Its highest bit is set in all bytes of a number but the last.

    >>> varints(np.array([0, -1, 1, 150])).encoded.to_pylist()
    [b'\\x00', b'\\x01', b'\\x02', b'\\xac\\x02']
    >>> varints(np.array([0, -1, 1, 150])).sizes.tolist()
    [1, 1, 1, 2]
    """
    zigzag = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    sizes = 1 + np.searchsorted(_LARGER, zigzag, side="right")
    # A row for each number, with as many columns as the largest number needs. Shorter numbers do not use the last columns.
    column = np.arange(sizes.max(initial=1))
    groups = ((zigzag[:, None] >> (7 * column).astype(np.uint64)) & np.uint64(0x7F)).astype(np.uint8)
    groups[column < sizes[:, None] - 1] |= 0x80
    used = groups[column < sizes[:, None]]
    return Varints(_binary(_starts(sizes), pa.py_buffer(used)), sizes)


class _VarintTable:
    """As `varints`, but numbers from -1 to `SIZE` - 2 are looked up, which is faster. Nearly all lengths and offsets are."""

    SIZE = 1 << 15

    def __init__(self) -> None:
        self._table = varints(np.arange(-1, self.SIZE - 1))

    def __call__(self, numbers: np.ndarray) -> Varints:
        if numbers.max() >= self.SIZE - 1:
            return varints(numbers)
        rows = (numbers + 1).astype(np.int32)
        return Varints(self._table.encoded.take(pa.array(rows)), self._table.sizes[rows])


def _headers(headers: pa.Array) -> pa.Array:
    """The field `headers` of each record."""
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = headers.flatten()
    names, contents = flat.field(0).cast(pa.binary()), flat.field(1)
    each = _join(varints(_lengths(names)).encoded, names, varints(_lengths(contents)).encoded, contents)
    # The headers of a record are adjacent, so together they are one slice of the bytes of all headers.
    starts = _starts(_lengths(each))[_starts(counts)]
    return _join(varints(counts).encoded, _binary(starts, pa.py_buffer(_concatenate(each))))


def _lengths(data: pa.Array) -> np.ndarray:
    """Bytes of each item, -1 for null: the length that precedes a key or a value."""
    return pc.fill_null(pc.binary_length(data), -1).to_numpy(zero_copy_only=False).astype(np.int64)


def _starts(sizes: np.ndarray) -> np.ndarray:
    """Where each of adjacent items starts, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(sizes)))


def _join(*columns: pa.Array | pa.Scalar) -> pa.Array:
    """Concatenate columns row by row. Null adds no bytes."""
    return pc.binary_join_element_wise(*columns, b"", null_handling="replace", null_replacement=b"")


def _binary(starts: np.ndarray, data: pa.Buffer) -> pa.Array:
    """A BINARY array of adjacent slices of `data`."""
    return pa.Array.from_buffers(pa.binary(), len(starts) - 1, [None, pa.py_buffer(starts.astype(np.int32)), data])


def _concatenate(data: pa.Array) -> bytes:
    """All items, one after the other."""
    if not len(data):
        return b""
    starts = np.frombuffer(data.buffers()[1], np.int32)[data.offset : data.offset + len(data) + 1]
    return data.buffers()[2][starts[0] : starts[-1]].to_pybytes()


def _gzip(data: bytes) -> bytes:
    stream = compressobj(wbits=31)
    return stream.compress(data) + stream.flush()


def _lz4(data: bytes) -> bytes:
    """An LZ4 frame of independent blocks of 64 KiB, which Kafka's readers require. The constant is its header with checksum."""
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
    """The format of snappy-java, which Kafka's readers require: a header, then blocks with their lengths."""
    codec = pa.Codec("snappy")
    blocks = [codec.compress(data[start : start + (1 << 15)], asbytes=True) for start in range(0, len(data), 1 << 15)]
    return b"".join([b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01", *(struct.pack(">I", len(block)) + block for block in blocks)])


def _zstd(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (NOT_COMPRESSED, lambda data: data),
    "gzip": (1, _gzip),
    "snappy": (2, _snappy),
    "lz4": (3, _lz4),
    "zstd": (4, _zstd),
}
"""By compression.type: the codec's number in a batch, and the function. They need no package besides pyarrow."""
