"""What `dbt docs generate` knows of a relation: its columns, its comments and its statistics, a topic's own among them.

Leaves to `topics` how a topic is asked, and to `views` what a run left in the catalog.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.spark.column import SparkColumn
from kafka.errors import KafkaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka import records, topics, views
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.options.table import KAFKA
from dbt.adapters.upsert_kafka.reading import METADATA
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.topics import Statistics

logger = AdapterLogger("upsert_kafka")

DESCRIPTIONS = {
    "topic": "the Kafka topic that this relation is",
    "partitions": "",
    "records": "messages between the first and the last offset; compaction may have removed some of them",
    "keys": "live ones, known while nobody else wrote since the last publication",
    "bytes": "on the brokers' disks, all replicas together",
    "cleanup policy": "",
    "retention": "",
    "last record": "the timestamp of the newest message",
    "last publication": "when a run of this project last wrote to the topic",
    "lag": "messages of other writers since then",
    # The site of `dbt docs` shows all of these in one line, by name: what is long comes last.
    "topic key schema": "of avro",
    "topic value schema": "of avro",
}


def columns(
    spark: SparkSession,
    relation: UpsertKafkaRelation,
    kafka: Callable[[str | None], KafkaSettings],
    options: ModelOptions | None = None,
) -> Iterator[dict[str, Any]]:
    """One row per column, as dbt's catalog takes them.

    Args:
        kafka: how to reach the cluster that a model names, None for the profile's.
        options: of the model that writes to the topic that the relation shows.
    """
    rows = spark.sql(f"DESCRIBE EXTENDED {views.name(relation)}").collect()
    names = [row["col_name"] for row in rows]
    end = next((i for i, name in enumerate(names) if not name or name.startswith("#")), len(rows))
    facts = {row["col_name"]: row["data_type"] for row in rows[end:]}
    described = {
        "table_database": None,
        "table_schema": relation.schema,
        "table_name": relation.identifier,
        "table_type": relation.type,
        "table_comment": facts.get("Comment") or None,
        "table_owner": facts.get("Owner"),
        **SparkColumn.convert_table_stats(facts.get("Statistics")),
        **_topic(spark, relation, kafka, options),
    }
    for index, row in enumerate(rows[:end], 1):
        yield {
            **described,
            "column_name": row["col_name"],
            "column_index": index,
            "column_type": row["data_type"],
            "column_comment": row["comment"] or None,
        }


def line(name: str, found: Statistics | None, state: Mapping[str, str]) -> str:
    """A topic in one line.

    Args:
        state: what the last run left in the catalog.
    """
    if found is None:
        return f"topic '{name}', not there yet"
    shown = _shown(found, state if state.get(views.TOPIC) == name else {})
    return f"topic '{name}', " + ", ".join(f"{label} {value}" for label, value in shown.items())


def _topic(
    spark: SparkSession,
    relation: UpsertKafkaRelation,
    kafka: Callable[[str | None], KafkaSettings],
    options: ModelOptions | None,
) -> dict[str, Any]:
    state = views.state(spark, relation) if relation.is_view else {}
    name = state.get(views.TOPIC)
    if name is None:
        return {}
    try:
        with kafka(state.get(views.SERVERS)).admin() as admin:
            found = topics.statistics(admin, name)
    except (UpsertKafkaError, KafkaError) as error:
        logger.warning(f"{relation}: topic '{name}' has no statistics in the catalog: {error}")
        found = None
    schemas = _avro_schemas(views.columns(spark, relation), name, options) if options else {}
    shown = {"topic": name, **(_shown(found, state) if found else {}), **schemas}
    return {
        f"stats:{label.replace(' ', '_')}:{part}": value
        for label, text in shown.items()
        for part, value in {"label": label, "value": text, "description": DESCRIPTIONS[label], "include": True}.items()
    }


def _avro_schemas(exposed: StructType, topic: str, options: ModelOptions) -> dict[str, str]:
    """What the relation's columns are in the topic, by role; nothing for a key that came after the last run."""
    fields = [field for field in exposed.fields if options.materialization != KAFKA or field.name not in METADATA]
    if not {name.lower() for name in options.unique_key} <= {field.name.lower() for field in fields}:
        return {}
    layout = records.layout(options, topic, StructType(fields))
    return {f"topic {role} schema": schema for role, schema in layout.avro_schemas().items()}


def _shown(found: Statistics, state: Mapping[str, str]) -> Mapping[str, Any]:
    newest = found.newest_millis
    return {
        "partitions": found.partitions,
        "records": found.records,
        **({} if found.bytes is None else {"bytes": found.bytes}),
        **({} if found.cleanup_policy is None else {"cleanup policy": found.cleanup_policy, "retention": _retention(found)}),
        **({} if newest is None else {"last record": views.time_text(newest / 1000)}),
        **_since(found, json.loads(state.get(views.PUBLICATION, "null"))),
    }


def _since(found: Statistics, publication: dict[str, Any] | None) -> dict[str, Any]:
    if publication is None:
        return {}
    before = publication["end"]
    lag = sum(max(0, end - before.get(str(partition), 0)) for partition, end in found.end.items())
    keys = None if lag else publication.get("keys")
    return {**({} if keys is None else {"keys": keys}), "last publication": publication["at"], "lag": lag}


def _retention(found: Statistics) -> str:
    if "delete" not in (found.cleanup_policy or ""):
        return "last per key"
    if found.retention_millis < 0:
        return "for ever"
    return str(dt.timedelta(milliseconds=found.retention_millis))
