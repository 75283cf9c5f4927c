"""Topics that no model owns any more: found by their mark, deleted only on request and never while somebody reads them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer

from dbt.adapters.upsert_kafka import orphans, publish, topics
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.orphans import Orphan
from tests.tables import Table


@pytest.fixture
def owned(table: Table) -> Table:
    """A topic that a run of the project `shop` made."""
    table.publish([(1, "ann")], project="shop")
    return table


def found(table: Table, *of_models: str, project: str = "shop") -> list[Orphan]:
    return list(orphans.find(table.spark, [table.schema, "no_such_schema"], project, of_models))


def drop(table: Table, orphan: Orphan, has_model: bool = False) -> str:
    with KafkaSettings(table.broker).admin() as admin:
        return orphans.drop(table.spark, admin, orphan, has_model)


def exists(table: Table, topic: str) -> bool:
    with KafkaSettings(table.broker).admin() as admin:
        return topics.describe(admin, topic) is not None


def test_a_topic_whose_model_is_gone_is_an_orphan_of_its_project_only(owned: Table) -> None:
    assert found(owned, owned.topic) == []
    assert found(owned, project="another") == []
    assert [orphan.topic for orphan in found(owned)] == [owned.topic]


def test_a_topic_that_was_there_before_is_never_an_orphan(table: Table) -> None:
    with KafkaSettings(table.broker).admin() as admin:
        topics.create(admin, table.topic, topics.Wanted(partitions=1))
    table.publish([(1, "ann")], project="shop")
    assert found(table) == []


def test_dropping_an_orphan_deletes_its_topic_and_its_relations(owned: Table) -> None:
    [orphan] = found(owned)
    assert drop(owned, orphan) == f"dropped: topic '{owned.topic}'"
    assert not exists(owned, owned.topic)
    # A session's temporary views are listed too, whatever the schema.
    assert owned.spark.sql(f"SHOW TABLES IN `{owned.schema}`").where("NOT isTemporary").isEmpty()
    assert found(owned) == []


def test_a_model_with_another_topic_leaves_the_old_one_and_says_so(owned: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(publish.logger, "warning", warnings.append)
    old, owned.topic = owned.topic, f"{owned.topic}.new"
    owned.publish([(1, "ann")], project="shop")
    [warning] = [text for text in warnings if "former topic" in text]
    assert f"its former topic '{old}' is left as it is" in warning
    [orphan] = found(owned, owned.topic)
    assert orphan.topic == old
    drop(owned, orphan, has_model=True)
    assert not exists(owned, old)
    assert owned.view() == [(1, "ann")]
    assert found(owned, owned.topic) == []
    assert [orphan.topic for orphan in found(owned)] == [owned.topic]


@pytest.fixture
def reader(owned: Table) -> Iterator[str]:
    """A group with a member on the topic."""
    group = f"readers-of-{owned.topic}"
    consumer = KafkaConsumer(owned.topic, bootstrap_servers=owned.broker, group_id=group)
    while not consumer.assignment():
        consumer.poll(timeout_ms=500)
    yield group
    consumer.close()


def test_a_topic_that_somebody_reads_is_not_dropped(owned: Table, reader: str) -> None:
    [orphan] = found(owned)
    assert drop(owned, orphan) == f"refused: topic '{owned.topic}' is read by {reader}; stop these groups first"
    assert exists(owned, owned.topic)
