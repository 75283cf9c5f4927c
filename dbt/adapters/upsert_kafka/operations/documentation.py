"""The catalog of `dbt docs generate`: columns, comments and statistics of a relation, and those of its topic.

Leaves to `topics` the requests to the cluster, and to `state` what the last run recorded.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dbt.adapters.spark.column import SparkColumn
from kafka.errors import KafkaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka.catalog import views
from dbt.adapters.upsert_kafka.catalog.reading import METADATA
from dbt.adapters.upsert_kafka.dbt_warnings import warn
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.formats import records
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import Statistics
from dbt.adapters.upsert_kafka.operations.environment import Environment, trusted
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.options.table import KAFKA
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.state.record import StateRecord, time_text

DESCRIPTIONS = {
    "topic": "the Kafka topic that this relation shows",
    "key": "the columns of the message key",
    "format": "of the message value, and of the key if it differs",
    "owner": "the model that publishes to the topic",
    "partitions": "",
    "records": "records between the first and the last offset; compaction may have removed some of them",
    "keys": "keys with a value; known while no other writer wrote since the last run",
    "bytes": "on the brokers' disks, all replicas together",
    "cleanup policy": "",
    "retention": "",
    "last record": "the timestamp of the newest record",
    "last publication": "when a run last compared the topic with its SELECT and wrote the difference",
    "lag": "records of other writers since the last publication",
    # The site of `dbt docs` shows all of these in one line, sorted by name: long texts come last.
    "topic key schema": "the Avro schema of the keys",
    "topic value schema": "the Avro schema of the values",
}
# The site of `dbt docs` sorts statistics by label, and a browser does not show spaces at the beginning.
FIRST = {"topic": "    topic", "key": "   key", "format": "  format", "owner": " owner"}


@dataclass(frozen=True)
class Publisher:
    """The model that writes to the topic of a relation."""

    options: ModelOptions
    kafka: KafkaSettings
    environment: Environment


def columns(spark: SparkSession, relation: UpsertKafkaRelation, publisher: Publisher | None) -> Iterator[dict[str, Any]]:
    """Yield one row per column, in the form of dbt's catalog.

    Args:
        publisher: None for a relation without a topic.
    """
    rows = spark.sql(f"DESCRIBE EXTENDED {views.name(relation)}").collect()
    names = [row["col_name"] for row in rows]
    end = next((i for i, name in enumerate(names) if not name or name.startswith("#")), len(rows))
    details = {row["col_name"]: row["data_type"] for row in rows[end:]}
    common = {
        "table_database": None,
        "table_schema": relation.schema,
        "table_name": relation.identifier,
        "table_type": "topic" if publisher and relation.is_view else relation.type,
        "table_comment": details.get("Comment") or None,
        "table_owner": details.get("Owner"),
        **SparkColumn.convert_table_stats(details.get("Statistics")),
        **(_topic_statistics(spark, relation, publisher) if publisher and relation.is_view else {}),
    }
    for index, row in enumerate(rows[:end], 1):
        yield {
            **common,
            "column_name": row["col_name"],
            "column_index": index,
            "column_type": row["data_type"],
            "column_comment": row["comment"] or None,
        }


def line(name: str, found: Statistics | None, record: StateRecord | None, no_owner: str = "nobody") -> str:
    """Describe a topic in one line.

    Args:
        found: None if the topic does not exist.
        record: None if the topic has none, or one of another topic with this name.
        no_owner: the owner's text if there is no record.
    """
    if found is None:
        return f"topic '{name}', does not exist yet"
    owner = {"owner": record.owner, "last run": record.run} if record else {"owner": no_owner}
    shown = {**_labelled(found, record), **owner}
    return f"topic '{name}', " + ", ".join(f"{label} {value}" for label, value in shown.items())


def _topic_statistics(spark: SparkSession, relation: UpsertKafkaRelation, publisher: Publisher) -> dict[str, Any]:
    environment, options = publisher.environment, publisher.options
    if environment.state.is_off:
        return {}
    record, found = None, None
    try:
        with publisher.kafka.admin() as admin:
            store = environment.store(publisher.kafka, admin)
            record = environment.record_of(store, admin, str(relation.schema), str(relation.identifier))
            if record is not None and trusted(store, admin, record).owner is not None:
                found = topics.statistics(admin, record.topic)
    except (UpsertKafkaError, KafkaError) as error:
        warn(f"{relation}: the statistics of its topic are missing in the catalog: {error}")
    if record is None:
        return {}
    schemas = _avro_schemas(views.columns(spark, relation), record.topic, options)
    first = {
        "topic": record.topic,
        "key": ", ".join(options.unique_key) or "none",
        "format": _formats(options),
    }
    # Without statistics the record may be of an earlier topic of this name.
    known = {"owner": record.owner, **_labelled(found, record)} if found else {}
    shown = {**first, **known, **schemas}
    return {
        f"stats:{name.replace(' ', '_')}:{part}": value
        for name, shown_value in shown.items()
        for part, value in _statistic(name, shown_value).items()
    }


def _statistic(name: str, value: Any) -> dict[str, Any]:
    text = value if isinstance(value, (int, str)) else str(value)
    return {"label": FIRST.get(name, name), "value": text, "description": DESCRIPTIONS[name], "include": True}


def _formats(options: ModelOptions) -> str:
    if not options.unique_key or options.key_format == options.value_format:
        return options.value_format
    return f"{options.value_format}, key {options.key_format}"


def _avro_schemas(exposed: StructType, topic: str, options: ModelOptions) -> dict[str, str]:
    """The Avro schemas of the topic by role; none if the columns of the key have not been published yet."""
    fields = [field for field in exposed.fields if options.materialization != KAFKA or field.name not in METADATA]
    if not {name.lower() for name in options.unique_key} <= {field.name.lower() for field in fields}:
        return {}
    layout = records.layout(options, topic, StructType(fields))
    return {f"topic {role} schema": schema for role, schema in layout.avro_schemas().items()}


def _labelled(found: Statistics, record: StateRecord | None) -> Mapping[str, Any]:
    newest = found.newest_millis
    return {
        "partitions": found.partitions,
        "records": found.records,
        **({} if found.bytes is None else {"bytes": found.bytes}),
        **({} if found.cleanup_policy is None else {"cleanup policy": found.cleanup_policy, "retention": _retention(found)}),
        **({} if newest is None else {"last record": time_text(newest / 1000)}),
        **(_since_publication(found, record) if record else {}),
    }


def _since_publication(found: Statistics, record: StateRecord) -> dict[str, Any]:
    if record.published is None:
        return {}
    at, log = {"last publication": record.published.at}, record.log
    if log is None:
        return at
    lag = sum(max(0, end - log.end.get(partition, 0)) for partition, end in found.end.items())
    keys = None if lag else log.live_keys
    return {**({} if keys is None else {"keys": keys}), **at, "lag": lag}


def _retention(found: Statistics) -> str:
    if "delete" not in (found.cleanup_policy or ""):
        return "last record per key"
    if found.retention_millis < 0:
        return "forever"
    return str(dt.timedelta(milliseconds=found.retention_millis))
