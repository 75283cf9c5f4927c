"""murmur2 returns the hashes of Kafka's Java client."""

from __future__ import annotations

import doctest

import pyarrow as pa

from dbt.adapters.upsert_kafka.sinks import murmur2 as module
from dbt.adapters.upsert_kafka.sinks.murmur2 import murmur2

# Computed with org.apache.kafka.common.utils.Utils.murmur2 of kafka-clients 4.1.1.
JAVA = {
    b"": 275646681,
    b"a": -1563381124,
    b"ab": 316155434,
    b"abc": 479470107,
    b"abcd": -1323649548,
    b"21": -973932308,
    b"foobar": -790332482,
    b'{"user_id":1}': 1459008305,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "Grüße, 世界 🎉".encode(): 1386736580,
    b"\xff\x80\x00\x7f\xfe\xff\x80": 1160082268,
}


def test_hashes_equal_those_of_the_java_client() -> None:
    assert dict(zip(JAVA, murmur2(pa.array(JAVA, pa.binary())), strict=True)) == JAVA


def test_slice_of_an_array_is_hashed() -> None:
    keys = [*JAVA]
    assert list(murmur2(pa.array(keys, pa.binary()).slice(3, 5))) == [JAVA[key] for key in keys[3:8]]


def test_empty_array_has_no_hashes() -> None:
    assert len(murmur2(pa.array([], pa.binary()))) == 0


def test_examples_in_docstrings_are_right() -> None:
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
