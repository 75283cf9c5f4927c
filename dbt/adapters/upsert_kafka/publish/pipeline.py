"""From a model's SELECT to a topic equal to it: the steps of a run, in order. Read this first.

    encode -> recall -> compare -> guard -> claim -> place -> deliver -> expose -> close

Each step is a module of this package or of one below. `append` is the shorter pipeline of `kafka` models that only add events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka.catalog import views
from dbt.adapters.upsert_kafka.dbt_warnings import warn_about
from dbt.adapters.upsert_kafka.errors import GuardError, TopicMovedError
from dbt.adapters.upsert_kafka.formats.changelog import ChangelogFormat
from dbt.adapters.upsert_kafka.formats.records import Records
from dbt.adapters.upsert_kafka.kafka_client import open_transactions, topic_drift, topics
from dbt.adapters.upsert_kafka.kafka_client.topic_drift import Drift
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.publish import (
    announce,
    change_events,
    compare,
    configuration,
    deliver,
    encode,
    expose,
    fingerprint,
    guards,
    planned,
    samples,
    scan,
    schema_changes,
)
from dbt.adapters.upsert_kafka.publish.changes import Changes
from dbt.adapters.upsert_kafka.publish.fingerprint import Fingerprint
from dbt.adapters.upsert_kafka.publish.kinds import Kind, Policy
from dbt.adapters.upsert_kafka.publish.memory import Memory, Result, columns_of, layout_of, published_layout, recall
from dbt.adapters.upsert_kafka.publish.preview import Preview
from dbt.adapters.upsert_kafka.publish.refusals import Refusals
from dbt.adapters.upsert_kafka.publish.request import Publication, Request, delivered, preview_of
from dbt.adapters.upsert_kafka.publish.violations import ViolationCount
from dbt.adapters.upsert_kafka.sinks import Delivery
from dbt.adapters.upsert_kafka.sinks.partitioners import Partitioner
from dbt.adapters.upsert_kafka.spark.checkpoint import release_checkpoints
from dbt.adapters.upsert_kafka.state.record import Layout

logger = AdapterLogger("upsert_kafka")


ANOTHER_TOPIC = "was created, deleted or got partitions"
COMPARISONS = 3
"""How often a run compares, if the topic is created, deleted or gets partitions while the run computes, or if another run
publishes to it before an exactly-once run has opened its transaction."""


@release_checkpoints()
def publish(spark: SparkSession, rows: DataFrame, request: Request) -> Publication:
    """Make the topic equal to `rows`, and expose it as the relation.

    Args:
        rows: the model's SELECT, not yet executed.
    """
    topics.check_name(request.topic)
    deliver.check_spark(spark, request)
    rows = _with_removed_columns(spark, rows, request)
    layout = encode.layout_of(rows, request)
    before = views.prepare(spark, request.model, request.relation, creates_schema=request.mode != "preview")
    run = Run(spark, rows, layout, deliver.partitioner_of(request), before, request)
    if request.mode == "check":
        _check_schema(run, None)
        expose.expose(spark, layout, request, before)
        return Publication(_message="checked, nothing published", topic=request.topic)
    with request.kafka.admin() as admin:
        for _ in range(COMPARISONS):
            try:
                return _publish_once(admin, run)
            except TopicMovedError as error:
                happened = error.happened
                logger.debug(f"model {request.model}: topic '{request.topic}' {happened}, comparing again")
    raise GuardError(
        f"model {request.model}: topic '{request.topic}' {happened} during each of {COMPARISONS} comparisons. "
        "Nothing was written by this run. Run again when the topic stays as it is."
    )


@dataclass(frozen=True)
class Run:
    """What is the same in every comparison of a run."""

    spark: SparkSession
    rows: DataFrame
    layout: Records
    partitioner: Partitioner
    before: Mapping[str, str]
    """Properties of the table of raw records."""
    request: Request


def _publish_once(admin: KafkaAdminClient, run: Run) -> Publication:
    """Compare once and write.

    Raises:
        TopicMovedError: the topic is not as it was compared. Nothing was written.
    """
    spark, request = run.spark, run.request
    refusals = Refusals(request.model, collects=request.mode == "preview")
    planned.check_topic(admin, request)
    topic = _existing_topic(admin, request)
    memory = recall(admin, topic, request)
    layout = replace(run.layout, knows_keys=_knows_keys(memory, run.layout, request))
    run = replace(run, layout=layout)
    drift = topic_drift.drift(topic, request.topic_settings) if topic is not None else ()
    deletes_old_keys = False
    with refusals.check():
        memory.check_owner()
    with refusals.check():
        encode.check_schemas(layout, request.model)
    with refusals.check():
        configuration.check(request.model, request.topic, drift, request.on_configuration_change)
    with refusals.check():
        if topic is not None and not topic.is_empty:
            _check_schema(run, memory.trusted.layout)
    with refusals.check():
        deletes_old_keys = _has_old_keys(memory, layout, topic, request)
    policy = Policy.of(request.options, request.full_refresh, deletes_old_keys)

    violations = ViolationCount(request.not_null, request.checks)
    last = memory.trusted.log
    seed = compare.seed_of(last, request.planned.seed if request.planned else None)
    state = fingerprint.before(memory.cluster_id, topic, layout, request, seed)
    planned.check_causes(request, state)
    encoded = layout.encode_to_compare(violations.observe(run.rows), request.options, seed)
    gets_partitions = configuration.adds_partitions(drift, request.on_configuration_change)
    inputs = compare.Inputs(spark, encoded, layout, policy, topic, last, seed, request, gets_partitions)
    comparison = compare.compare(inputs)
    changes = comparison.changes

    warnings = configuration.warnings(topic, request.topic_settings, request.on_configuration_change) if topic else []
    with refusals.check():
        warnings += guards.check(request.model, changes, layout, request.options, violations.violations())
    with refusals.check():
        memory.check_changes(changes[Kind.UPDATE], changes[Kind.DELETE] + changes.stale_values)
    with refusals.check():
        deliver.check_size(admin, topic, changes.largest, request)
    announced = _announcements(run, memory, changes[Kind.UPDATE], topic)
    if request.mode == "preview" or request.planned is not None:
        messages = _records(spark, changes, layout, topic, request)
        state = replace(state, messages=fingerprint.of_messages(messages, layout, seed))
        planned.check_all(request, state)
    if request.mode == "preview":
        notes = (*announced, *warnings)
        request.report(_preview(run, changes, Situation(topic, memory, state, drift), notes, tuple(refusals.reasons)))
        return _publication(changes, request)

    warn_about(request.model, [*announced, *warnings])
    memory = memory.prepared()
    is_created = topic is None
    topic = _topic_to_write(admin, topic, request)
    topic = configuration.applied(admin, topic, drift, request.on_configuration_change)
    memory = memory.claim(topic, is_created)

    result = Result(topic, layout, None, changes.keys_after, comparison.digest_after, seed)
    delivery = None
    if changes.to_write:
        placed = deliver.place(_records(spark, changes, layout, topic, request), run.partitioner, topic)
        delivery = deliver.deliver(placed, changes.messages, topic, admin, request, memory.in_transaction(result))
    else:
        deliver.commit_groups(topic, admin, request, memory.in_transaction(result))

    expose.expose(spark, layout, request, run.before)
    log = memory.close(replace(result, delivery=delivery))
    if memory.remembers:
        compare.save_snapshot(spark, comparison, log, topic, request)
    return _publication(changes, request, delivery)


def _with_removed_columns(spark: SparkSession, rows: DataFrame, request: Request) -> DataFrame:
    """The rows to publish by the model's on_schema_change, which is `append_new_columns` or leaves them as they are."""
    schema_changes.check_mode(request.model, request.on_schema_change)
    if request.on_schema_change != schema_changes.APPEND or request.full_refresh:
        return rows
    layout = published_layout(request) if request.mode != "check" else None
    layout = layout or schema_changes.exposed_layout(spark, request)
    return rows if layout is None else schema_changes.with_removed_columns(rows, columns_of(layout))


def _check_schema(run: Run, before: Layout | None) -> None:
    """Refuse other columns or another format, if the model asks for that; without a state record the view is compared."""
    request = run.request
    if request.on_schema_change == schema_changes.FAIL and not request.full_refresh:
        before = before or schema_changes.exposed_layout(run.spark, request)
        schema_changes.check(request.model, before, layout_of(run.layout, request.time_zone))


def _existing_topic(admin: KafkaAdminClient, request: Request) -> Topic | None:
    """The topic as this run compares with it, after the transaction of a killed run was aborted and others have ended."""
    topic = topics.describe(admin, request.topic)
    if topic is not None:
        topics.check_rights(topic, *_rights(request))
        if request.mode == "publish" and request.transactional_id:
            deliver.recover(admin, topic, request)
            return open_transactions.describe_settled(admin, topic)
    return topic


def _topic_to_write(admin: KafkaAdminClient, topic: Topic | None, request: Request) -> Topic:
    """The topic to write to, created if there was none.

    Raises:
        TopicMovedError: it is not the topic that was compared with.
    """
    if topic is None:
        topic, is_created = topics.create_unless_exists(admin, request.topic, request.topic_settings)
        topics.check_rights(topic, *_rights(request))
        if not is_created:
            raise TopicMovedError(request.topic, ANOTHER_TOPIC)
        return replace(topic, written=dict.fromkeys(topic.end, 0)) if request.transactional_id else topic
    if topics.is_another(admin, topic):
        raise TopicMovedError(request.topic, ANOTHER_TOPIC)
    if not request.transactional_id:
        # A transaction checks this itself, when no other run can write any more.
        moved = topics.moved(admin, topic)
        planned.check(request, moved)
        warn_about(request.model, moved)
    return topic


def _rights(request: Request) -> tuple[str, ...]:
    return ("READ", "WRITE") if request.mode == "publish" else ("READ",)


def _has_old_keys(memory: Memory, layout: Records, topic: Topic | None, request: Request) -> bool:
    """Whether the topic has keys in the layout of an earlier run, which --full-refresh deletes."""
    if memory.trusted.layout is None or topic is None or topic.is_empty:
        return False
    return schema_changes.check_key(request.model, memory.trusted.layout.key, layout.key_layout(), request.full_refresh)


def _knows_keys(memory: Memory, layout: Records, request: Request) -> bool:
    before = memory.trusted.layout
    return before is not None and before.key == layout.key_layout() and request.options.foreign_keys != "delete"


def _announcements(run: Run, memory: Memory, updated: int, topic: Topic | None) -> list[str]:
    """What changes for consumers, who may have read the records that the topic has."""
    recreated = memory.recreated(topic)
    if topic is None or topic.is_empty:
        return [recreated] if recreated else []
    before, now = memory.trusted.layout, layout_of(run.layout, run.request.time_zone)
    zone = announce.time_zone_change(before, now.time_zone, updated)
    if before is None and not recreated:
        before = schema_changes.exposed_layout(run.spark, run.request)
    columns = announce.layout_change(before, now, topic.name)
    return [line for line in (recreated, columns, zone) if line]


@dataclass(frozen=True)
class Situation:
    """The topic of a preview as it is now."""

    topic: Topic | None
    memory: Memory
    state: Fingerprint
    drift: tuple[Drift, ...]


def _preview(run: Run, changes: Changes, now: Situation, notes: tuple[str, ...], refusals: tuple[str, ...]) -> Preview:
    request, layout, topic = run.request, run.layout, now.topic
    before = now.memory.trusted.layout if topic is not None and not topic.is_empty else None
    found = scan.read(run.spark, request.kafka, topic) if topic is not None and not topic.is_empty else None
    layouts = samples.Layouts.of(layout, before, request.options, request.registry)
    columns = announce.differences(before, layout_of(layout, request.time_zone)) if before is not None else None
    return replace(
        preview_of(request, topic, now.state),
        counts={kind.value: changes[kind] for kind in changes.counts},
        live_keys=changes.live_keys,
        refusals=refusals,
        notes=notes,
        columns=columns or announce.Differences(),
        drift=now.drift,
        samples=samples.of_changes(changes, found, layouts, request.samples),
    )


def _records(spark: SparkSession, changes: Changes, layout: Records, topic: Topic | None, request: Request) -> DataFrame:
    if not isinstance(layout.value_format, ChangelogFormat):
        return changes.records()
    found = None if topic is None or topic.is_empty else scan.read(spark, request.kafka, topic)
    return change_events.records(changes, found, layout)


def _publication(changes: Changes, request: Request, delivery: Delivery | None = None) -> Publication:
    inserted, updated = changes[Kind.INSERT], changes[Kind.UPDATE] + changes[Kind.REPUBLISH]
    deleted, unchanged = changes[Kind.DELETE], changes[Kind.UNCHANGED]
    is_preview = request.mode == "preview"
    return Publication(
        _message=f"{'dry run, nothing published: ' if is_preview else ''}topic {request.topic}: "
        f"{inserted} new, {updated} changed, {deleted} deleted, {unchanged} unchanged",
        rows_affected=0 if is_preview else inserted + updated + deleted,
        topic=request.topic,
        dry_run=is_preview,
        inserted=inserted,
        updated=updated,
        deleted=deleted,
        unchanged=unchanged,
        dropped=changes[Kind.NULL],
        foreign=changes[Kind.FOREIGN],
        **({} if is_preview else delivered(delivery, request)),
    )
