"""Offsets that a delivery takes: records, and the commit markers of a transaction."""

from __future__ import annotations

from dbt.adapters.upsert_kafka.sinks import Delivery

BEFORE = {0: 10, 1: 5, 2: 0}
OFFSETS = {0: (10, 12), 2: (0, 0)}


def test_transaction_leaves_one_commit_marker_per_written_partition() -> None:
    delivery = Delivery("exactly-once", records=4, transactional_id="id", offsets=OFFSETS)
    assert delivery.end_offsets(BEFORE) == {0: 14, 1: 5, 2: 2}


def test_delivery_without_transaction_leaves_no_marker() -> None:
    delivery = Delivery("at-least-once", records=4, offsets=OFFSETS)
    assert delivery.end_offsets(BEFORE) == {0: 13, 1: 5, 2: 1}


def test_end_offsets_are_unknown_without_offsets() -> None:
    delivery = Delivery("at-least-once", records=4)
    assert delivery.end_offsets(BEFORE) is None
