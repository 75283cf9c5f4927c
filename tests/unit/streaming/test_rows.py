"""Which batches the driver writes itself."""

from __future__ import annotations

from typing import Any

import pytest

from dbt.adapters.upsert_kafka.streaming.rows import SMALL_BYTES, SMALL_RECORDS, BatchRecords, Counts


@pytest.mark.parametrize(
    ("counts", "size", "is_small"),
    [
        (Counts(written=SMALL_RECORDS), SMALL_BYTES, True),
        (Counts(written=SMALL_RECORDS, deleted=1), 10, False),
        (Counts(written=1), SMALL_BYTES + 1, False),
        (Counts(deleted=1), None, False),
    ],
    ids=["at the bound", "too many records", "too many bytes", "unknown size"],
)
def test_driver_writes_batches_up_to_a_bound(counts: Counts, size: int | None, is_small: bool) -> None:
    records: Any = None
    assert BatchRecords(records, counts, size=size).is_small is is_small
