"""Record batches: kafka-python's reader decodes every shape of record that the encoder writes."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords
from kafka.record.util import encode_varint

from dbt.adapters.upsert_kafka.sinks import record_batch
from dbt.adapters.upsert_kafka.sinks.record_batch import HEADER_BYTES, Encoder, Producer, sizes, split, stamp, varints

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW = 1_700_000_000_000
payloads = st.none() | st.binary(max_size=40) | st.integers(63, 40_000).map(lambda n: b"x" * n)
headers = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=200)), max_size=3)
times = st.integers(0, 4_000_000_000_000)
rows = st.lists(st.tuples(payloads, payloads, headers, times), min_size=1, max_size=60)


def read(batch: bytes) -> Any:
    found = MemoryRecords(stamp(batch, Producer("id", 7, 3), 11)).next_batch()
    assert found.validate_crc()
    return found


def array_of_headers(items: list[Any]) -> pa.Array:
    dicts = [None if item is None else [{"key": name, "value": value} for name, value in item] for item in items]
    return pa.array(dicts, HEADERS)


@settings(max_examples=60, deadline=None)
@given(rows=rows, compression=st.sampled_from(["none", "gzip", "lz4"]), timed=st.booleans(), headed=st.booleans())
def test_reader_decodes_every_record(rows: list[Any], compression: str, timed: bool, headed: bool) -> None:
    keys, values, heads, stamps = ([row[i] for row in rows] for i in range(4))
    batch = Encoder(compression).encode(
        pa.array(stamps, pa.int64()) if timed else NOW,
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        array_of_headers(heads) if headed else None,
    )
    found = read(batch)
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.is_transactional) == (7, 3, 11, True)
    expected = [(k, v, list(h or []) if headed else [], t if timed else NOW) for k, v, h, t in rows]
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in found] == expected


def test_slices_of_columns_are_encoded() -> None:
    keys = pa.array([b"a", b"b", None, b"d"], pa.binary())
    values = pa.array([b"1", None, b"3", b"4"], pa.binary())
    heads = array_of_headers([[("h", b"1")], [("h", b"2"), ("i", None)], None, []])
    batch = Encoder("none").encode(NOW, keys.slice(1, 2), values.slice(1, 2), heads.slice(1, 2))
    assert [(r.key, r.value, list(r.headers)) for r in read(batch)] == [
        (b"b", None, [("h", b"2"), ("i", None)]),
        (None, b"3", []),
    ]


def test_batch_of_a_producer_without_transactions_is_not_transactional() -> None:
    batch = Encoder("none").encode(NOW, pa.array([b"k"], pa.binary()), pa.array([b"v"], pa.binary()))
    found = MemoryRecords(stamp(batch, Producer("", 7, 0), 11)).next_batch()
    assert found.validate_crc()
    assert (found.producer_id, found.base_sequence, found.is_transactional) == (7, 11, False)


def test_records_that_do_not_shrink_are_not_compressed() -> None:
    noise = np.random.default_rng(1).bytes(100)
    batch = Encoder("lz4").encode(NOW, pa.array([noise], pa.binary()), pa.array([None], pa.binary()))
    assert read(batch).compression_type == 0


@pytest.mark.parametrize(("compression", "codec"), [("none", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_batch_header_has_the_number_of_the_codec(compression: str, codec: int) -> None:
    batch = Encoder(compression).encode(NOW, pa.array([b"k"], pa.binary()), pa.array([b"v" * 1000], pa.binary()))
    assert MemoryRecords(batch).next_batch().compression_type == codec
    assert (len(batch) < 200) == (compression != "none")


@pytest.mark.parametrize(
    ("limit", "ranges"),
    [
        (100, [(0, 3), (3, 4), (4, 5)]),
        (1000, [(0, 5)]),
        (1, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
    ],
)
def test_split_respects_the_limit_except_for_a_larger_record(limit: int, ranges: list[tuple[int, int]]) -> None:
    assert list(split(np.array([30, 30, 40, 90, 500]), limit)) == ranges


def test_sizes_are_at_least_the_bytes_written() -> None:
    keys, values = pa.array([b"k" * 70, None], pa.binary()), pa.array([None, b"v" * 300], pa.binary())
    heads = array_of_headers([[("name", b"value" * 30)], None])
    batch = Encoder("none").encode(pa.array([5, 2**41]), keys, values, heads)
    assert sizes(keys, values, heads).sum() >= len(batch) - HEADER_BYTES


@given(numbers=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=30))
def test_varints_equal_those_of_kafka_python(numbers: list[int]) -> None:
    expected = []
    for number in numbers:
        written = bytearray()
        encode_varint(number, written.append)
        expected.append(bytes(written))
    found = varints(np.array(numbers, np.int64))
    assert found.encoded.to_pylist() == expected
    assert found.sizes.tolist() == [len(written) for written in expected]


def test_examples_in_docstrings_are_right() -> None:
    result = doctest.testmod(record_batch)
    assert result.attempted and not result.failed
