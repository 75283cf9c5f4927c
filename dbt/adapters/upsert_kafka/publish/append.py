"""The pipeline of `kafka` models by default: each run appends its rows to the topic as events.

    encode -> guard -> place -> deliver -> expose

Leaves to `pipeline` the `kafka` models that compare with the topic (update_mode upsert and retract, CDC formats).
"""

from __future__ import annotations

import secrets
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.catalog import views
from dbt.adapters.upsert_kafka.dbt_warnings import warn_about
from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.formats.records import KEY, NULL_KEY, PARTITION, VALUE, Records, extras, size
from dbt.adapters.upsert_kafka.kafka_client import topic_drift, topics
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.publish import (
    announce,
    configuration,
    deliver,
    encode,
    expose,
    fingerprint,
    guards,
    planned,
    samples,
    schema_changes,
)
from dbt.adapters.upsert_kafka.publish.kinds import Kind
from dbt.adapters.upsert_kafka.publish.memory import Result, layout_of, recall
from dbt.adapters.upsert_kafka.publish.refusals import Refusals
from dbt.adapters.upsert_kafka.publish.request import Appended, Request, delivered, preview_of
from dbt.adapters.upsert_kafka.publish.violations import ViolationCount
from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint, release_checkpoints
from dbt.adapters.upsert_kafka.spark.metrics import ObservedMetrics
from dbt.adapters.upsert_kafka.state.record import Layout


@release_checkpoints()
def append(spark: SparkSession, rows: DataFrame, request: Request) -> Appended:
    """Append `rows` to the topic, and expose all of its records as the relation.

    All rows are computed before the first is written: a SELECT that fails after some rows must not append them, because the next
    run would append them again.

    Args:
        rows: the model's SELECT, not yet executed.
    """
    topics.check_name(request.topic)
    deliver.check_spark(spark, request)
    schema_changes.check_mode(request.model, request.on_schema_change)
    layout = encode.layout_of(rows, request)
    partitioner = deliver.partitioner_of(request)
    before = views.prepare(spark, request.model, request.relation, creates_schema=request.mode != "preview")
    if request.mode == "check":
        expose.expose(spark, layout, request, before)
        return Appended(_message="checked, nothing appended", topic=request.topic)

    metrics = ObservedMetrics()
    violations = ViolationCount(request.not_null, request.checks)
    encoded = metrics.observe(
        layout.encode(violations.observe(rows), request.options),
        F.count_if(~F.col(NULL_KEY)).alias("rows"),
        F.count_if(NULL_KEY).alias("nulls"),
        F.count_if(~F.col(NULL_KEY) & F.col(KEY).isNotNull() & F.col(VALUE).isNull()).alias("tombstones"),
        F.max(size()).alias("largest"),
    )
    events = checkpoint(encoded.where(~F.col(NULL_KEY)).select(KEY, VALUE, *extras(encoded)))
    count, nulls = metrics.values["rows"], metrics.values["nulls"]

    refusals = Refusals(request.model, collects=request.mode == "preview")
    with refusals.check():
        _check(request, violations.violations(), nulls)
    with request.kafka.admin() as admin:
        planned.check_topic(admin, request)
        topic = topics.describe(admin, request.topic)
        if topic is not None and request.transactional_id and request.mode == "publish":
            deliver.recover(admin, topic, request)
        memory = recall(admin, topic, request)
        drift = topic_drift.drift(topic, request.topic_settings) if topic is not None else ()
        with refusals.check():
            memory.check_owner()
        with refusals.check():
            encode.check_schemas(layout, request.model)
        with refusals.check():
            configuration.check(request.model, request.topic, drift, request.on_configuration_change)
        with refusals.check():
            deliver.check_size(admin, topic, metrics.values["largest"] or 0, request)
        announced: list[str] = []
        with refusals.check():
            before_run = memory.trusted.layout
            if before_run is None and topic is not None and not topic.is_empty and not memory.recreated(topic):
                before_run = schema_changes.exposed_layout(spark, request)
            announced = schema_changes.announcements(before_run, layout_of(layout, request.time_zone), request)
        warnings = _warnings(topic, layout, metrics.values["tombstones"], request)
        if request.mode == "preview" or request.planned is not None:
            seed = request.planned.seed if request.planned is not None else secrets.randbits(63)
            state = fingerprint.before(memory.cluster_id, topic, layout, request, seed)
            state = replace(state, messages=fingerprint.of_messages(events, layout, seed))
            planned.check_all(request, state)
        if request.mode == "preview":
            now = replace(
                preview_of(request, topic, state),
                counts={samples.APPEND: count, Kind.NULL.value: nulls},
                refusals=tuple(refusals.reasons),
                notes=(*announced, *warnings),
                columns=_differences(memory.trusted.layout, layout_of(layout, request.time_zone)),
                drift=drift,
                samples=samples.of_events(events, layout, request.samples),
            )
            request.report(now)
            return Appended(
                _message=f"dry run, nothing appended: topic {request.topic}: {count} appended",
                topic=request.topic,
                dry_run=True,
                appended=count,
                dropped=nulls,
            )
        warn_about(request.model, [*announced, *warnings])
        memory = memory.prepared()
        is_created = False
        if topic is None:
            topic, is_created = topics.create_unless_exists(admin, request.topic, request.topic_settings)
            memory = memory if is_created else recall(admin, topic, request).prepared()
        topics.check_rights(topic, "WRITE")
        if not is_created:
            planned.check(request, topics.moved(admin, topic) if request.planned is not None else ())
        topic = configuration.applied(admin, topic, drift, request.on_configuration_change)
        memory = memory.claim(topic, is_created)
        result = Result(topic, layout)
        delivery = None
        if count:
            placed = deliver.place(events.withColumn(PARTITION, F.lit(None).cast("int")), partitioner, topic)
            delivery = deliver.deliver(placed, count, topic, admin, request, memory.in_transaction(result))
        else:
            deliver.commit_groups(topic, admin, request, memory.in_transaction(result))
        memory.close(replace(result, delivery=delivery))
    expose.expose(spark, layout, request, before)
    return Appended(
        _message=f"topic {request.topic}: {count} appended",
        rows_affected=count,
        topic=request.topic,
        appended=count,
        dropped=nulls,
        **delivered(delivery, request),
    )


def _differences(before: Layout | None, now: Layout) -> announce.Differences:
    return announce.Differences() if before is None else announce.differences(before, now)


def _warnings(topic: Topic | None, layout: Records, tombstones: int, request: Request) -> list[str]:
    """Warnings about the topic, which may not exist yet."""
    settings = request.topic_settings
    policy = topic.cleanup_policy if topic else settings.config.get("cleanup.policy")
    deletes = guards.appended_tombstones(tombstones, request.topic, policy, layout)
    drift = configuration.warnings(topic, settings, request.on_configuration_change) if topic else []
    return [*drift, *([deletes] if deletes else [])]


def _check(request: Request, broken: list[str], nulls: int) -> None:
    """Refuse rows that violate a constraint or, unless on_null_key='drop', have no key."""
    reasons = list(broken)
    if nulls and request.options.on_null_key != "drop":
        keyless = guards.null_keys(nulls, ", ".join(request.options.unique_key))
        reasons.append(f"{keyless}. Set on_null_key='drop' to leave such rows out.")
    if reasons:
        raise GuardError("\n".join(f"model {request.model}: {reason}" for reason in reasons) + "\nNothing was written.")
