"""Which records a relation is restored from: only those of its own model and environment, or of one other environment."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from dbt.adapters.upsert_kafka.catalog.restore import Restorable
from dbt.adapters.upsert_kafka.errors import KafkaUnreachableError, OptionsError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations import recorded
from dbt.adapters.upsert_kafka.operations.environment import Environment
from dbt.adapters.upsert_kafka.operations.recorded import Details, Node, RecordedRelations
from dbt.adapters.upsert_kafka.state.record import Layout, Owner, Published, Run, StateRecord, View
from dbt.adapters.upsert_kafka.state.store import Access, StateSettings

OWNER = Owner("shop", "dev", "analytics", "orders")
RECORD = StateRecord(
    *("orders", "cluster", "id", OWNER, "orders", Run("i", "host", "2026-01-01 00:00:00Z")),
    layout=Layout("{}", "{}", ()),
    view=View("upsert_kafka"),
    published=Published("now", ""),
)
LIVE = {"orders": "id", "old": "id", "prod.orders": "id"}


class Kafka(KafkaSettings):
    """Settings of a cluster that no client is opened for."""

    @contextmanager
    def admin(self, *_: Any, **__: Any) -> Any:
        yield Mock()


DETAILS = Details(Kafka("a:9092"), lambda record: Restorable(record, Kafka("a:9092")))
NODE = Node("model", "orders", "upsert_kafka", "analytics", "Orders", lambda: DETAILS)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The topics of the records that `analytics.orders` or another relation is restored from."""

    def find(*records: StateRecord, node: Node | None = NODE, name: str = "analytics.orders", live: Any = None) -> list[str]:
        store = Mock(access=lambda _: Access.FULL, cluster_id=lambda _: "cluster", all=lambda *_, **__: iter(records))
        monkeypatch.setattr(recorded, "store_of", lambda *_: store)
        monkeypatch.setattr(topics, "ids", lambda _, wanted: {n: i for n, i in (live or LIVE).items() if n in wanted})
        nodes = {} if node is None else {(node.schema.lower(), node.alias.lower()): node}
        relations = RecordedRelations(Environment("shop", "dev", StateSettings()), nodes, DETAILS)
        schema, alias = name.split(".")
        listed = [str(relation.identifier) for relation in relations.relations(schema).relations]
        one = relations.find(schema, alias)
        assert [alias] * bool(one) == [name for name in listed if name.lower() == alias.lower()], "listed if it can be restored"
        return [one.record.topic] if one else []

    return find


def test_relation_of_a_model_is_restored_from_its_last_topic(found: Any) -> None:
    old = replace(RECORD, topic="old", run=replace(RECORD.run, started_at="2025-01-01 00:00:00Z"))
    assert found(RECORD, old) == ["orders"]


@pytest.mark.parametrize(
    "record",
    [
        replace(RECORD, owner=replace(OWNER, project="other")),
        replace(RECORD, owner=replace(OWNER, environment="prod")),
        replace(RECORD, owner=replace(OWNER, model="former_name")),
        replace(RECORD, cluster_id="other"),
        replace(RECORD, topic_id="of a topic that was deleted"),
        replace(RECORD, topic="deleted"),
        replace(RECORD, view=None),
        replace(RECORD, published=None),
    ],
)
def test_record_of_another_owner_or_topic_is_not_used_for_a_model(found: Any, record: StateRecord) -> None:
    assert found(record) == []


@pytest.mark.parametrize("materialization", ["table", "view", "kafka_source"])
def test_model_without_a_topic_does_not_get_its_former_topic(found: Any, materialization: str) -> None:
    assert found(RECORD, node=replace(NODE, materialization=materialization)) == []


def test_relation_of_one_other_environment_is_restored_for_defer(found: Any) -> None:
    prod = replace(RECORD, owner=replace(OWNER, environment="prod", schema="prod"), topic="prod.orders")
    assert found(prod, name="prod.orders") == ["prod.orders"]
    staging = replace(prod, owner=replace(prod.owner, environment="staging"), topic="orders")
    assert found(prod, staging, name="prod.orders") == [], "not known which one is meant"
    assert found(replace(prod, owner=replace(prod.owner, environment="dev")), name="prod.orders") == [], "a removed model"


def test_helper_tables_are_not_looked_for(found: Any) -> None:
    assert found(replace(RECORD, alias="orders__topic"), node=None, name="analytics__kafka.orders__topic") == []


def test_listing_goes_on_without_a_cluster_and_without_a_model_with_wrong_options(monkeypatch: pytest.MonkeyPatch) -> None:
    unreachable = Mock(side_effect=KafkaUnreachableError("x"))
    down = cast(KafkaSettings, Mock(bootstrap_servers="down:9092", properties={}, admin=unreachable))
    monkeypatch.setattr(recorded, "store_of", lambda *_: Mock(access=lambda _: Access.NONE))
    nodes = {
        ("s", "a"): replace(NODE, details=Mock(side_effect=OptionsError("wrong"))),
        ("s", "b"): replace(NODE, details=lambda: replace(DETAILS, kafka=down)),
    }
    listing = RecordedRelations(Environment("shop", "dev", StateSettings()), nodes, DETAILS).relations("s")
    assert (listing.relations, listing.errors) == ([], {"down:9092": "x"})


@pytest.mark.parametrize(
    ("node", "state", "text"),
    [
        (
            replace(NODE, materialization="kafka_source"),
            None,
            r"model orders \(kafka_source\).*: dbt run --select orders",
        ),
        (replace(NODE, kind="seed", materialization="seed"), None, "built by seed orders, .*: dbt seed --select orders"),
        (NODE, None, "The state topic has no record of model orders in environment dev"),
        (NODE, "none", "`state_topic: none`.*dbt run --select orders"),
    ],
)
def test_message_names_the_node_to_build(node: Node, state: str | None, text: str) -> None:
    environment = Environment("shop", "dev", StateSettings(state) if state else StateSettings())
    relations = RecordedRelations(environment, {("analytics", "orders"): node}, DETAILS)
    for name in (("analytics", "Orders"), ("analytics__kafka", "orders__topic")):
        assert re.search(text, relations.explain(*name) or "")
    assert relations.explain("analytics", "others") is None
