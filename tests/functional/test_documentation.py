"""What the catalog of `dbt docs` and `list_topics` tell of a topic and the cluster does not: schemas, what came after a run."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from dbt.adapters.contracts.relation import RelationType

from dbt.adapters.upsert_kafka import documentation, options, topics, views
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from tests.tables import Table


def relation(table: Table) -> UpsertKafkaRelation:
    return UpsertKafkaRelation.create(schema=table.schema, identifier="users", type=RelationType.View)


def statistics(table: Table, **config: Any) -> dict[str, Any]:
    """The statistics that every column's row of the catalog has, by name."""
    parsed = options.parse(table.materialization, "users", {**table.options, **config})
    row = next(iter(documentation.columns(table.spark, relation(table), lambda _: KafkaSettings(table.broker), parsed)))
    return {key.split(":")[1]: value for key, value in row.items() if key.startswith("stats:") and key.endswith(":value")}


def line(table: Table) -> str:
    with KafkaSettings(table.broker).admin() as admin:
        found = topics.statistics(admin, table.topic)
    return documentation.line(table.topic, found, views.state(table.spark, relation(table)))


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_the_lag_counts_what_others_wrote_since_the_last_publication(table: Table, guarantee: str) -> None:
    table.options["sink_delivery_guarantee"] = guarantee
    table.publish([(1, "ann"), (2, "bob")])
    assert line(table).endswith(", lag 0") and statistics(table)["keys"] == 2
    table.write_by_hand((b'{"id":9}', b"{}", 0), (b'{"id":9}', None, 0), (b'{"id":9}', None, 1))
    first = statistics(table)
    assert "keys" not in first, "others may have added some"
    assert first["lag"] == 3 and line(table).endswith(f", last publication {first['last_publication']}, lag 3")
    # A run that has nothing to write is no publication; other options than before make the view anew.
    table.publish([(1, "ann"), (2, "bob")], foreign_keys="keep", ignore_parse_errors=True)
    assert statistics(table)["lag"] == 3
    table.publish([(1, "ann")], foreign_keys="keep")
    assert (statistics(table)["lag"], statistics(table)["keys"]) == (0, 1)


@pytest.mark.parametrize("materialization", ["upsert_kafka", "kafka"])
def test_the_catalog_has_the_schema_that_reads_the_records(table: Table, materialization: str) -> None:
    table.materialization = materialization
    formats = {"key_format": "json", "value_format": "avro"}
    table.publish([(1, "ann")], **formats)
    found = statistics(table, **formats)
    assert "topic_key_schema" not in found
    [record] = table.records()
    row = fastavro.schemaless_reader(io.BytesIO(record.value or b""), json.loads(found["topic_value_schema"]), None)
    assert row == {"id": 1, "name": "ann"}


def test_a_key_that_was_not_published_yet_has_no_schema_in_the_catalog(table: Table) -> None:
    table.publish([(1, "ann")], format="avro")
    assert "topic_key_schema" in statistics(table, format="avro")
    assert "topic_key_schema" not in statistics(table, format="avro", unique_key="number")
