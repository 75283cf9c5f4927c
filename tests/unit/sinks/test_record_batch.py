"""Record batches: an independent reader gets back what was put in, for every shape of record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from dbt.adapters.upsert_kafka.sinks.record_batch import Encoder, Identity, sizes, split, stamp

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW = 1_700_000_000_000
payloads = st.none() | st.binary(max_size=40) | st.integers(63, 40_000).map(lambda n: b"x" * n)
headers = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=200)), max_size=3)
times = st.integers(0, 4_000_000_000_000)
rows = st.lists(st.tuples(payloads, payloads, headers, times), min_size=1, max_size=60)


def read(batch: bytes) -> Any:
    found = MemoryRecords(stamp(batch, Identity("id", 7, 3), 11)).next_batch()
    assert found.validate_crc()
    return found


def array_of_headers(items: list[Any]) -> pa.Array:
    dicts = [None if item is None else [{"key": name, "value": value} for name, value in item] for item in items]
    return pa.array(dicts, HEADERS)


@settings(max_examples=60, deadline=None)
@given(rows=rows, compression=st.sampled_from(["none", "gzip", "lz4"]), timed=st.booleans(), headed=st.booleans())
def test_reader_gets_back_every_record(rows: list[Any], compression: str, timed: bool, headed: bool) -> None:
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


def test_slices_of_columns_are_written_as_such() -> None:
    keys = pa.array([b"a", b"b", None, b"d"], pa.binary())
    values = pa.array([b"1", None, b"3", b"4"], pa.binary())
    heads = array_of_headers([[("h", b"1")], [("h", b"2"), ("i", None)], None, []])
    batch = Encoder("none").encode(NOW, keys.slice(1, 2), values.slice(1, 2), heads.slice(1, 2))
    assert [(r.key, r.value, list(r.headers)) for r in read(batch)] == [
        (b"b", None, [("h", b"2"), ("i", None)]),
        (None, b"3", []),
    ]


def test_what_does_not_shrink_is_sent_as_it_is() -> None:
    noise = np.random.default_rng(1).bytes(100)
    batch = Encoder("lz4").encode(NOW, pa.array([noise], pa.binary()), pa.array([None], pa.binary()))
    assert read(batch).compression_type == 0


@pytest.mark.parametrize(
    ("limit", "ranges"),
    [
        (100, [(0, 3), (3, 4), (4, 5)]),
        (1000, [(0, 5)]),
        (1, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]),
    ],
)
def test_split_keeps_to_the_limit_but_never_cuts_a_record(limit: int, ranges: list[tuple[int, int]]) -> None:
    assert list(split(np.array([30, 30, 40, 90, 500]), limit)) == ranges


def test_sizes_are_no_less_than_the_bytes_written() -> None:
    keys, values = pa.array([b"k" * 70, None], pa.binary()), pa.array([None, b"v" * 300], pa.binary())
    heads = array_of_headers([[("name", b"value" * 30)], None])
    batch = Encoder("none").encode(pa.array([5, 2**41]), keys, values, heads)
    assert sizes(keys, values, heads).sum() >= len(batch) - 61
