"""The topics of one environment: which records belong to it, on which clusters, and what an adopted topic keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from dbt.adapters.upsert_kafka.errors import StateError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.environment import Environment, TopicModel, clusters
from dbt.adapters.upsert_kafka.operations.orphans import Relations
from dbt.adapters.upsert_kafka.operations.owners import is_still_created
from dbt.adapters.upsert_kafka.state.record import Owner, Run, StateRecord
from dbt.adapters.upsert_kafka.state.store import StateSettings, StateStore
from dbt.adapters.upsert_kafka.state.trust import NOTHING, Trusted

ORDERS = Owner("shop", "dev", "analytics", "orders")
DEV = Environment("shop", "dev", StateSettings())
MODEL = TopicModel(ORDERS, "orders", "orders", KafkaSettings("a:9092"))
RECORD = StateRecord("orders", "cluster", "id", ORDERS, "orders", Run("i1", "host", "2026-01-01 00:00:00Z"))


def store(*records: StateRecord) -> StateStore:
    return cast(StateStore, Mock(all=lambda admin: iter(records)))


def test_records_of_other_projects_and_environments_are_left_out() -> None:
    others = [replace(RECORD, owner=replace(ORDERS, **other)) for other in ({"project": "other"}, {"environment": "prod"})]
    assert list(DEV.records(store(RECORD, *others), Mock())) == [RECORD]


def test_relation_shows_the_topic_of_its_last_run() -> None:
    newer = replace(RECORD, topic="orders.v2", run=Run("i2", "host", "2026-01-02 00:00:00Z"))
    other = replace(newer, topic="users", alias="users", run=Run("i3", "host", "2026-01-03 00:00:00Z"))
    assert DEV.record_of(store(newer, RECORD, other), Mock(), "analytics", "orders") == newer
    assert DEV.record_of(store(newer), Mock(), "analytics", "buyers") is None


def test_clusters_are_the_profiles_and_those_that_models_name() -> None:
    profile, other = KafkaSettings("a:9092"), KafkaSettings("b:9092")
    models = [MODEL, replace(MODEL, kafka=other), replace(MODEL, kafka=KafkaSettings("b:9092", {"client.id": "x"}))]
    assert clusters(profile, models) == [profile, other]


def test_operation_without_state_says_which_field_to_remove() -> None:
    with pytest.raises(StateError, match="the profile sets `state_topic: none`"):
        Environment("shop", "dev", StateSettings("none")).store(KafkaSettings("a:9092"), Mock())


@pytest.mark.parametrize(
    ("known", "kept"),
    [
        (Trusted(replace(ORDERS, model="former_name"), created=True), True),
        (Trusted(replace(ORDERS, schema="other"), created=False), False),
        (Trusted(replace(ORDERS, environment="prod"), created=True), False),
        (Trusted(replace(ORDERS, project="other"), created=True), False),
        (NOTHING, False),
    ],
)
def test_adopted_topic_counts_as_created_after_a_rename_only(known: Trusted, kept: bool) -> None:
    assert is_still_created(MODEL, known) is kept


def test_relations_with_helper_tables_are_those_of_topics_and_sources() -> None:
    def node(alias: str, materialized: str) -> dict[str, Any]:
        return {"schema": "analytics", "alias": alias, "config": {"materialized": materialized}}

    found = Relations.of({"a": node("orders", "upsert_kafka"), "b": node("clicks", "kafka_source"), "c": node("report", "view")})
    assert found.of_topics == {("analytics", "orders"), ("analytics", "clicks")}
    assert found.all == {*found.of_topics, ("analytics", "report")}
