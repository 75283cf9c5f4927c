"""What `stream()` refuses before anything starts, in one line each."""

from __future__ import annotations

from typing import Any

import pytest

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.streaming import streams_of

KINDS = {"views": "kafka_source", "events": "kafka", "users": "upsert_kafka", "dates": "table", "names": "view"}
GRAPH: dict[str, Any] = {
    "nodes": {
        name: {"name": name, "schema": "s", "alias": name, "config": {"materialized": kind}} for name, kind in KINDS.items()
    },
    "sources": {"raw.orders": {"name": "orders", "schema": "lake", "identifier": "orders", "config": {"enabled": True}}},
}


def _relation(identifier: str, schema: str = "s") -> UpsertKafkaRelation:
    return UpsertKafkaRelation.create(schema=schema, identifier=identifier)


@pytest.mark.parametrize(("name", "schema"), [("views", "s"), ("events", "s"), ("dates", "s"), ("orders", "lake")])
def test_kafka_sources_kafka_models_and_tables_are_streams(name: str, schema: str) -> None:
    assert streams_of.source_node("m", _relation(name, schema), GRAPH)["name"] == name


@pytest.mark.parametrize(
    ("relation", "message"),
    [
        (_relation("users"), "users is a upsert_kafka. Read it as a static table with ref()"),
        (_relation("names"), "names is a view. Read it as a static table with ref()"),
        (_relation("users", "lake"), "lake.users is no model or source of this project. Add it as a source"),
    ],
    ids=["upsert_kafka", "view", "unknown relation"],
)
def test_other_relations_are_refused_in_one_line(relation: UpsertKafkaRelation, message: str) -> None:
    with pytest.raises(OptionsError) as refused:
        streams_of.source_node("m", relation, GRAPH)
    text = str(refused.value.msg).replace("`", "")
    assert message in text and len(text.splitlines()) == 1


def test_events_of_a_kafka_model_are_read_from_its_full_topic_with_its_client() -> None:
    sink = options.parse("kafka", "events", {"unique_key": "id", "properties": {"client.id": "c"}, "bootstrap_servers": "b:1"})
    found = streams_of.events_of("m", "events", sink, "prod.s.events")
    assert (found.topics, found.bootstrap_servers, found.properties) == (("prod.s.events",), "b:1", {"client.id": "c"})
    assert (found.unique_key, found.scan_startup_mode, found.scan_bounded_mode) == ((), "earliest-offset", "latest-offset")


def test_changes_of_a_kafka_model_are_refused() -> None:
    sink = options.parse("kafka", "events", {"unique_key": "id", "update_mode": "upsert"})
    with pytest.raises(OptionsError, match="update_mode=upsert writes changes"):
        streams_of.events_of("m", "events", sink, "s.events")
