"""Statistics of a topic in `dbt docs` and `list_topics` that the cluster does not have: schemas, lag, number of keys."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from dbt.adapters.contracts.relation import RelationType

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations import documentation, list_topics
from dbt.adapters.upsert_kafka.operations.documentation import Publisher
from dbt.adapters.upsert_kafka.operations.environment import Environment, TopicModel
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.state.store import StateSettings
from tests.tables import Table

SHOP = Environment("shop", "dev", StateSettings())


def relation(table: Table) -> UpsertKafkaRelation:
    return UpsertKafkaRelation.create(schema=table.schema, identifier="users", type=RelationType.View)


def statistics(table: Table, **config: Any) -> dict[str, Any]:
    """The statistics in the rows of the catalog, by name."""
    parsed = options.parse(table.materialization, "users", {**table.options, **config})
    publisher = Publisher(parsed, KafkaSettings(table.broker), SHOP)
    row = next(iter(documentation.columns(table.spark, relation(table), publisher)))
    return {key.split(":")[1]: value for key, value in row.items() if key.startswith("stats:") and key.endswith(":value")}


def line(table: Table) -> str:
    [found] = list_topics.lines(SHOP, [TopicModel(table.owner, "users", table.topic, KafkaSettings(table.broker))])
    return found


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_lag_counts_records_of_other_writers_since_the_last_publication(table: Table, guarantee: str) -> None:
    table.options["sink_delivery_guarantee"] = guarantee
    table.publish([(1, "ann"), (2, "bob")])
    assert f", lag 0, owner {table.owner}, last run invocation " in line(table) and statistics(table)["keys"] == 2
    table.write_by_hand((b'{"id":9}', b"{}", 0), (b'{"id":9}', None, 0), (b'{"id":9}', None, 1))
    first = statistics(table)
    assert "keys" not in first, "other writers may have added keys"
    assert first["lag"] == 3 and f", last publication {first['last_publication']}, lag 3, owner " in line(table)
    table.publish([(1, "ann")], foreign_keys="keep")
    assert (statistics(table)["lag"], statistics(table)["keys"]) == (0, 1)


def test_topic_key_format_and_owner_come_first_and_the_type_is_topic(table: Table) -> None:
    table.publish([(1, "ann")])
    publisher = Publisher(options.parse(table.materialization, "users", table.options), KafkaSettings(table.broker), SHOP)
    row = next(iter(documentation.columns(table.spark, relation(table), publisher)))
    assert row["table_type"] == "topic"
    # The site sorts by label.
    labels = sorted(value for key, value in row.items() if key.startswith("stats:") and key.endswith(":label"))
    assert [label.strip() for label in labels[:4]] == ["topic", "key", "format", "owner"]
    first = [statistics(table)[name] for name in ("topic", "key", "format", "owner")]
    assert first == [table.topic, "id", "json", str(table.owner)]


def test_topics_are_listed_without_state(table: Table) -> None:
    table.publish([(1, "ann")])
    without_state = Environment("shop", "dev", StateSettings("none"))
    [found] = list_topics.lines(without_state, [TopicModel(table.owner, "users", table.topic, KafkaSettings(table.broker))])
    assert f"users: topic '{table.topic}', partitions 2, records 1" in found
    assert ", owner unknown: the profile sets `state_topic: none`" in found


def test_topic_that_was_created_again_has_no_owner_and_no_statistics(table: Table) -> None:
    table.publish([(1, "ann")])
    with KafkaSettings(table.broker).admin() as admin:
        topics.delete(admin, table.topic)
        topics.create(admin, table.topic, topics.TopicSettings(partitions=1))
    assert line(table).endswith(", owner nobody")
    assert set(statistics(table)) == {"topic", "key", "format"}


@pytest.mark.parametrize("materialization", ["upsert_kafka", "kafka"])
def test_catalog_has_the_avro_schema_of_the_records(table: Table, materialization: str) -> None:
    table.materialization = materialization
    formats = {"key_format": "json", "value_format": "avro"}
    table.publish([(1, "ann")], **formats)
    found = statistics(table, **formats)
    assert "topic_key_schema" not in found
    [record] = table.records()
    row = fastavro.schemaless_reader(io.BytesIO(record.value or b""), json.loads(found["topic_value_schema"]), None)
    assert row == {"id": 1, "name": "ann"}


def test_key_that_was_not_published_yet_has_no_schema_in_the_catalog(table: Table) -> None:
    table.publish([(1, "ann")], format="avro")
    assert "topic_key_schema" in statistics(table, format="avro")
    assert "topic_key_schema" not in statistics(table, format="avro", unique_key="number")
