"""The way of a row, step by step: from a model's SELECT to a topic equal to it.

The one place that shows the whole way; each step is a module of its own, in the order in which they are called here.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.events.logging import AdapterLogger
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import changes, guards, records, scan, topics, views
from dbt.adapters.upsert_kafka.changes import DELETE, INSERT, UNCHANGED, UPDATE, Changes
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.options import ModelOptions, check_columns
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.sinks import Target
from dbt.adapters.upsert_kafka.sinks.spark import SparkSink
from dbt.adapters.upsert_kafka.topics import Topic, Wanted

logger = AdapterLogger("upsert_kafka")


@dataclass(frozen=True)
class Request:
    """One run of one model."""

    model: str
    options: ModelOptions
    topic: str
    wanted: Wanted
    kafka: KafkaSettings
    relation: UpsertKafkaRelation
    existing: UpsertKafkaRelation | None = None
    """What has the relation's name in the catalog now."""
    full_refresh: bool = False
    publishes: bool = True
    """False for --empty and --sample: check everything, write nothing."""


@dataclass
class Publication(AdapterResponse):
    """What dbt prints at the end of a model's line and keeps in run_results.json."""

    topic: str = ""
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0


def publish(spark: SparkSession, rows: DataFrame, request: Request) -> Publication:
    """Make the topic equal to `rows`, and show it as the relation.

    Args:
        rows: the model's SELECT, not yet run.

    Returns:
        The counts of what was published.
    """
    check_columns(request.options, request.model, rows.columns)
    topics.check_name(request.topic)
    layout = records.layout(request.options, request.topic, rows.schema)
    problems = layout.problems()
    if problems:
        raise OptionsError("\n".join(f"{request.model}: {problem}" for problem in problems))
    if not request.publishes:
        views.expose(spark, request.relation, request.existing, request.topic, request.kafka, layout)
        return Publication(_message="nothing published (--empty or --sample)", topic=request.topic)

    with request.kafka.admin() as admin:
        topic = topics.describe(admin, request.topic)
        if topic is not None:
            for difference in topics.differences(topic, request.wanted):
                logger.warning(f"{request.model}: {difference}")
        change = _compare(spark, layout.encode(rows), topic, request)
        guards.check(request.model, change, layout)
        if topic is None:
            topic = topics.create(admin, request.topic, request.wanted)
    if change[INSERT] or change[UPDATE] or change[DELETE]:
        SparkSink("at-least-once").deliver(change.records(), Target(topic.name, topic.partitions, request.kafka))
    views.expose(spark, request.relation, request.existing, request.topic, request.kafka, layout)
    return _publication(request.topic, change)


def _compare(spark: SparkSession, encoded: DataFrame, topic: Topic | None, request: Request) -> Changes:
    if topic is None or topic.is_empty:
        return changes.compare(encoded, None, request.full_refresh)
    found = scan.read(spark, request.kafka, topic)
    change = changes.compare(encoded, scan.latest(found, split_keys=False), request.full_refresh)
    if change.split_keys:
        logger.warning(
            f"{request.model}: {change.split_keys} keys of topic '{topic.name}' are in more than one partition, "
            "so another writer placed them; the record with the latest timestamp counts"
        )
        change = changes.compare(encoded, scan.latest(found, split_keys=True), request.full_refresh)
    return change


def _publication(topic: str, change: Changes) -> Publication:
    inserted, updated, deleted, unchanged = (change[kind] for kind in (INSERT, UPDATE, DELETE, UNCHANGED))
    return Publication(
        _message=f"+{inserted} ~{updated} -{deleted} ={unchanged}",
        rows_affected=inserted + updated + deleted,
        topic=topic,
        inserted=inserted,
        updated=updated,
        deleted=deleted,
        unchanged=unchanged,
    )
