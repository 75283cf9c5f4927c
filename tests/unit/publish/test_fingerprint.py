"""What an apply says about a model that is not as it was planned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import TopicSettings
from dbt.adapters.upsert_kafka.publish.fingerprint import Fingerprint, Messages, shown_options, without_id
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.state.record import Owner, Run

PLANNED = Fingerprint(
    "c1", "t1", {"0": 3, "1": 5}, {"cleanup.policy": "compact"}, {"format": "json"}, "s", "l", 7, Messages(3, 9, "d")
)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"cluster_id": "c2"}, ["the cluster was c1, it is c2 now"]),
        ({"topic_id": "t2"}, ["the topic was deleted and created again"]),
        ({"topic_id": None, "end": {}}, ["the topic was deleted"]),
        ({"end": {"0": 3, "1": 5, "2": 0}}, ["the topic had 2 partitions, it has 3 now"]),
        ({"end": {"0": 3, "1": 6}}, ["the topic was written to: the end offsets moved (partition 1 from 5 to 6)"]),
        ({"settings": {"cleanup.policy": "delete"}}, ["topic setting cleanup.policy was compact, it is delete now"]),
        ({"options": {"format": "csv"}}, ["option format was json, it is csv now"]),
        ({"options": {}}, ["option format was json, it is not set now"]),
        ({"select": "other"}, ["the SELECT is another"]),
        ({"layout": "other"}, ["the columns or their types are others"]),
        ({"messages": Messages(3, 9, "e")}, ["the rows are others"]),
        ({"messages": Messages(4, 9, "e")}, ["the rows are others: 3 messages were planned, 4 would be sent now"]),
    ],
)
def test_differences(changed: dict[str, Any], expected: list[str]) -> None:
    assert PLANNED.differences(replace(PLANNED, **changed)) == expected


def request(folder: Path, **changed: Any) -> Request:
    parsed = options.parse(
        "upsert_kafka",
        "users",
        {"materialized": "upsert_kafka", "unique_key": "id", "sink_partitioner": "placed.by_name", "headers": {"a": "'s3cret'"}},
    )
    of_model = Request(
        model="users",
        options=parsed,
        topic="shop.users",
        topic_settings=TopicSettings(),
        kafka=KafkaSettings("a:1", {}),
        relation=UpsertKafkaRelation.create(schema="shop", identifier="users"),
        owner=Owner("shop", "dev", "shop", "users"),
        run=Run("r", "test", ""),
        folder=folder,
    )
    return replace(of_model, **changed)


def test_placement_topic_and_grants_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBT_ENV_SECRET_HEADER", "s3cret")
    (tmp_path / "placed.py").write_text("def by_name(key, value, partitions): return 0\n")
    planned = shown_options(request(tmp_path))
    assert shown_options(request(tmp_path)) == planned
    assert "s3cret" not in repr(planned)

    def changed(**of_request: Any) -> list[str]:
        now = shown_options(request(tmp_path, **of_request))
        return sorted(name for name in {*planned, *now} if planned.get(name) != now.get(name))

    assert changed(topic="shop.customers") == ["topic name"]
    assert changed(readers=("User:ann",)) == ["grants"]
    assert changed(kafka=KafkaSettings("a:1", {"partitioner.class": "org.example.Other"})) == ["partitioner"]
    assert changed(kafka=KafkaSettings("a:1", {"ssl.key.password": "x"})) == []
    (tmp_path / "placed.py").write_text("def by_name(key, value, partitions): return partitions - 1\n")
    assert changed() == ["partitioner"]


def test_schema_that_the_run_registers_is_no_other_layout() -> None:
    """The plan of a new schema has no id yet, and the run that applies the plan registers it first."""
    planned, registered = (json.dumps({"format": "avro-confluent", "options": {"schema_id": number}}) for number in (0, 7))
    assert without_id(planned) == without_id(registered) == '{"format": "avro-confluent", "options": {}}'


def test_topic_that_was_created_since() -> None:
    planned = replace(PLANNED, topic_id=None, end={}, settings={})
    assert planned.differences(PLANNED) == ["the topic was created"]


def test_json_keeps_everything() -> None:
    assert Fingerprint.from_dict(PLANNED.as_dict()) == PLANNED
