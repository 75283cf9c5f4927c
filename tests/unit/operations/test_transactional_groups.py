"""A group is part of a model's transaction only if the model is the one consumer of the source, on the same cluster."""

from __future__ import annotations

from typing import Any

import pytest

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.commit_group_offsets import GroupSource
from dbt.adapters.upsert_kafka.operations.transactional_groups import Command, transactional_groups
from dbt.adapters.upsert_kafka.source.group_offsets import GroupSlice
from dbt.adapters.upsert_kafka.source.slices import Slice
from dbt.adapters.upsert_kafka.state.record import Owner

EVENTS, SHOWN, ORDERS = "model.shop.events", "model.shop.shown", "model.shop.orders"
READ = GroupSlice("g", Slice({"events": {0: (2, 4)}}, {("events", 0): 2}))
WITH_GROUP = {"topic": "events", "properties": {"group.id": "g"}}


def node(unique_id: str, materialized: str, *parents: str) -> dict[str, Any]:
    return {
        "unique_id": unique_id,
        "name": unique_id.split(".")[2],
        "resource_type": "model",
        "config": {"materialized": materialized},
        "depends_on": {"nodes": list(parents)},
    }


BASE = [node(EVENTS, "kafka_source"), node(SHOWN, "view", EVENTS), node(ORDERS, "kafka", SHOWN)]
COPY = node("model.shop.copy", "table", EVENTS)


def groups(
    *more: dict[str, Any],
    config: dict[str, Any] = WITH_GROUP,
    read: GroupSlice | None = READ,
    server: str = "one:9092",
    defers: bool = False,
    selected: tuple[str, ...] = (),
) -> list[str]:
    def source_of(_: Any) -> GroupSource:
        parsed = options.parse("kafka_source", "events", config)
        return GroupSource("events", parsed, KafkaSettings(server), Owner("shop", "dev", "analytics", "events"), lambda: read)

    command = Command({n["unique_id"]: n for n in (*BASE, *more)}, selected, defers, source_of)
    return [commit.group for commit in transactional_groups(ORDERS, KafkaSettings("one:9092"), command)]


def test_group_of_the_only_consumer_is_part_of_its_transaction() -> None:
    assert groups() == ["g"]


@pytest.mark.parametrize(
    "case",
    [
        {"server": "two:9092"},
        {"config": {"topic": "events"}},
        {"config": {**WITH_GROUP, "scan_startup_mode": "earliest-offset"}},
        {"config": {"topic": "events", "misspelt_option_of_the_source": 1, "scan_startup_mode": "nonsense"}},
        {"read": None},
        {"defers": True},
        {"defers": True, "selected": (EVENTS, ORDERS)},
        {"defers": True, "selected": (SHOWN, ORDERS)},
    ],
    ids=str,
)
def test_other_clusters_modes_and_deferred_relations_are_left_to_the_hook(case: dict[str, Any]) -> None:
    assert groups(**case) == []


def test_second_consumer_counts_unless_it_is_released() -> None:
    assert groups(COPY) == []
    assert groups(COPY, config={**WITH_GROUP, "commit_without": ["copy"]}) == ["g"]


def test_deferred_command_that_runs_the_whole_path_commits() -> None:
    assert groups(defers=True, selected=(EVENTS, SHOWN, ORDERS)) == ["g"]
