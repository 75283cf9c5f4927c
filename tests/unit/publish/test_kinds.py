"""Which kinds are written, counted and shown, and which differences a policy writes."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql import DataFrame

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.publish.changes import Changes
from dbt.adapters.upsert_kafka.publish.kinds import COUNTED, Kind, Policy


def policy(full_refresh: bool = False, deletes_old_keys: bool = False, **config: Any) -> Policy:
    parsed = options.parse("upsert_kafka", "users", {"materialized": "upsert_kafka", "unique_key": "id", **config})
    return Policy.of(parsed, full_refresh, deletes_old_keys)


def test_kinds_that_are_written_are_counted_and_shown() -> None:
    assert all(kind.is_counted and kind.is_shown for kind in Kind if kind.is_written)


def test_intermediate_and_absent_keys_are_not_counted() -> None:
    assert set(Kind) - set(COUNTED) == {Kind.VANISHED, Kind.ABSENT}


def test_kind_is_its_name_in_sql() -> None:
    assert f"{Kind.NULL}" == Kind.NULL == "null_key"


def test_null_value_is_counted_and_shown_but_not_written() -> None:
    assert (Kind.NULL_VALUE.is_written, Kind.NULL_VALUE.is_counted, Kind.NULL_VALUE.is_shown) == (False, True, True)


@pytest.mark.parametrize(("update_mode", "messages"), [("upsert", 6), ("retract", 8)])
def test_messages_include_tombstones_for_old_values_in_other_partitions(update_mode: str, messages: int) -> None:
    counts = dict.fromkeys(COUNTED, 0) | {Kind.UPDATE: 2, Kind.DELETE: 1}
    frame = cast(DataFrame, None)
    changes = Changes(frame, counts, 2, 3, 3, 0, policy(update_mode=update_mode), stale_values=3)
    assert (changes.to_write, changes.messages, changes.keys_after) == (3, messages, 2)


def test_default_policy_makes_topic_equal_to_rows() -> None:
    assert policy().is_complete
    assert not policy().retracts


@pytest.mark.parametrize("config", [{"missing_keys": "keep"}, {"update_mode": "append"}, {"sink_ignore_retraction": True}])
def test_policy_that_keeps_keys_is_not_complete(config: dict[str, Any]) -> None:
    assert not policy(**config).is_complete


@pytest.mark.parametrize("config", [{"missing_keys": "keep"}, {"update_mode": "append"}])
def test_full_refresh_is_complete_whatever_the_mode_is(config: dict[str, Any]) -> None:
    assert policy(full_refresh=True, **config).is_complete
    assert policy(full_refresh=True, **config).republishes


def test_ignore_retraction_writes_no_tombstone_in_retract_mode() -> None:
    assert policy(update_mode="retract").retracts
    assert not policy(update_mode="retract", sink_ignore_retraction=True).retracts


def test_changed_key_layout_makes_old_keys_deletable() -> None:
    assert not policy(full_refresh=True).deletes_foreign
    assert policy(full_refresh=True, deletes_old_keys=True).deletes_foreign
    assert policy(foreign_keys="delete").deletes_foreign
