"""The state record: what is written is read again, and what can't be read is an error that names the topic."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dbt.adapters.upsert_kafka.errors import StateError
from dbt.adapters.upsert_kafka.state.record import (
    Layout,
    Lease,
    Log,
    Owner,
    Published,
    Run,
    StateRecord,
    Stream,
    View,
    decode,
    encode_lease,
)

OWNER = Owner("shop", "prod", "analytics", "orders")
CLAIM = StateRecord("orders", "cluster", "id", OWNER, "orders", Run("i1", "host", "2026-01-01 00:00:00Z"), created=True)
FULL = replace(
    CLAIM,
    layout=Layout('{"format": "json"}', "{}", (("id", "int"), ("name", "string"))),
    view=View("kafka", ("id",), True),
    published=Published("2026-01-01 00:00:10Z", "exactly-once"),
    log=Log({0: 0, 1: 5}, {0: 7, 1: 9}, 3, "[3, 0, 99]", 2**62 + 1),
)
PROGRESS = Stream({"SELECT": "a1"}, "query", 7, {"views": {0: 12, 1: 3}}, {"views": "id"}, True, {0: 5})
STREAM = replace(FULL, log=None, stream=PROGRESS)


@pytest.mark.parametrize("record", [CLAIM, FULL, STREAM])
def test_record_survives_encoding(record: StateRecord) -> None:
    assert decode("orders", record.encode()) == record


def test_lease_is_no_part_of_the_record_and_is_read_with_it() -> None:
    lease = Lease("l1", "host", 42, "boot/1", "2026-01-01 00:00:00Z", 1_800_000_060.5)
    leased = replace(STREAM, stream=replace(PROGRESS, lease=lease))
    assert leased.encode() == STREAM.encode()
    assert decode("orders", STREAM.encode(), encode_lease(lease)) == leased
    assert decode("orders", FULL.encode(), encode_lease(lease)) == FULL
    with pytest.raises(StateError, match="a field is missing"):
        decode("orders", STREAM.encode(), b"{}")


def test_unknown_field_is_ignored() -> None:
    value = {**json.loads(FULL.encode()), "added_in_a_later_version": 1}
    assert decode("orders", json.dumps(value).encode()) == FULL


def test_newer_version_is_refused() -> None:
    value = {**json.loads(FULL.encode()), "version": 2}
    with pytest.raises(StateError, match="topic 'orders' has version 2, this dbt-upsert-kafka reads version 1"):
        decode("orders", json.dumps(value).encode())


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"version": 1}',
        FULL.encode().replace(b'"shop"', b"7"),
        b'{"version":1,"topic":null}',
        FULL.encode().replace(b'"seed":', b'"seed":"x","s":'),
    ],
)
def test_value_that_is_not_a_record_is_refused(value: bytes) -> None:
    with pytest.raises(StateError, match="state record of topic 'orders' can't be read"):
        decode("orders", value)


def test_log_without_a_seed_is_not_comparable() -> None:
    value = json.loads(FULL.encode())
    del value["log"]["seed"]
    log = decode("orders", json.dumps(value).encode()).log
    assert log is not None and FULL.log is not None
    assert (log.seed, log.is_comparable, FULL.log.is_comparable) == (None, False, True)
    assert not replace(FULL.log, digest=None).is_comparable


def test_record_of_another_run_with_the_same_facts_describes_the_same() -> None:
    assert FULL.published is not None
    later = replace(FULL, run=Run("i2", "other", "later"), published=replace(FULL.published, at="later"))
    assert later.describes_same(FULL)
    assert not replace(later, created=False).describes_same(FULL)
    assert not later.describes_same(None)
