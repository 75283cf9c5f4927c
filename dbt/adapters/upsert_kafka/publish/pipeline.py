"""The way of a row, step by step: from a model's SELECT to a topic equal to it.

The one place that shows the whole way; each step is a module of its own, in the order in which they are called here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import (
    change_events,
    changes,
    contracts,
    guards,
    partitioners,
    preview,
    reading,
    records,
    scan,
    schema_changes,
    snapshots,
    topics,
    views,
)
from dbt.adapters.upsert_kafka.changes import DELETE, FOREIGN, INSERT, NULL, REPUBLISH, UNCHANGED, UPDATE, Changes, Policy
from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError
from dbt.adapters.upsert_kafka.formats.changelog import ChangelogFormat
from dbt.adapters.upsert_kafka.held import hold, keep, until_done
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.options import ModelOptions, check_columns
from dbt.adapters.upsert_kafka.options.table import KAFKA
from dbt.adapters.upsert_kafka.partitioners import DEFAULT, Partitioner
from dbt.adapters.upsert_kafka.records import Records
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.sinks import Delivery, Sink, Target
from dbt.adapters.upsert_kafka.sinks import spark as spark_sink
from dbt.adapters.upsert_kafka.sinks.spark import SparkSink
from dbt.adapters.upsert_kafka.snapshots import Part
from dbt.adapters.upsert_kafka.topics import Topic, Wanted

if TYPE_CHECKING:
    from dbt.adapters.upsert_kafka.sinks.transaction import TransactionSink

logger = AdapterLogger("upsert_kafka")

Mode = Literal["publish", "check", "preview"]
"""`check` is --empty and --sample: everything but the topic. `preview` is the dry run: everything but writing."""


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
    not_null: tuple[str, ...] = ()
    """Columns that must have no nulls, by the model's contract."""
    comments: views.Comments = field(default_factory=views.Comments)
    project: str = ""
    on_schema_change: str = "ignore"
    full_refresh: bool = False
    mode: Mode = "publish"
    registry: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The profile's schema registry."""
    folder: Path | None = None
    """The project's, where a custom partitioner is looked for."""

    @property
    def transactional_id(self) -> str | None:
        """Of an exactly-once run; the same for every run of a model, so that the next one ends what a killed one left open."""
        exactly_once = self.options.sink_delivery_guarantee == "exactly-once"
        return f"{self.options.sink_transactional_id_prefix}.{self.topic}" if exactly_once else None

    @property
    def places_by_default(self) -> bool:
        """Whether a new key goes where Kafka's own default puts it."""
        return (self.options.sink_partitioner or DEFAULT) == DEFAULT and "partitioner.class" not in self.kafka.properties


@dataclass
class Delivered(AdapterResponse):
    """What dbt keeps in run_results.json of every run that wrote."""

    delivery: str = ""
    transactional_id: str | None = None
    records: int = 0
    """Messages written: one for each changed key, or two in update_mode='retract'."""
    bytes: int | None = None
    partitions_written: int = 0
    offsets: dict[str, list[int]] | None = None
    """First and last offset written, by partition; as dbt's events can carry it."""


@dataclass
class Publication(Delivered):
    """What dbt prints at the end of a model's line and keeps in run_results.json."""

    topic: str = ""
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    dropped: int = 0
    """Rows without a key, left out by on_null_key='drop'."""
    foreign: int = 0
    """Keys of other writers that were left alone."""


@until_done()
def publish(spark: SparkSession, rows: DataFrame, request: Request) -> Publication:
    """Make the topic equal to `rows`, and show it as the relation.

    Args:
        rows: the model's SELECT, not yet run.

    Returns:
        The counts of what was published.
    """
    topics.check_name(request.topic)
    rows = _reconciled(spark, rows, request)
    layout = layout_of(rows, request)
    partitioner = partitioner_of(request)
    if request.mode == "check":
        expose(spark, layout, request)
        return Publication(_message="checked, nothing published", topic=request.topic)

    with request.kafka.admin() as admin:
        topic = topics.describe(admin, request.topic)
        rights = ("READ", "WRITE") if request.mode == "publish" else ("READ",)
        if topic is not None:
            topics.check_rights(topic, *rights)
        if topic is not None and request.mode == "publish" and request.transactional_id:
            _transaction_sink().recover(Target(topic.name, topic.partitions, request.kafka, request.transactional_id))
            topic = topics.describe(admin, request.topic)
        if topic is not None:
            _warn(request.model, topics.differences(topic, request.wanted))
        before = views.state(spark, request.relation)
        policy = _policy(request, _old_keys_are_foreign(before, layout, topic, request))
        nulls = contracts.NullCount(request.not_null)
        change, part = _compare(spark, nulls.watch(rows), layout, topic, policy, request)
        warnings = guards.check(request.model, change, layout, request.options, nulls.reasons())
        check_size(admin, topic, change.largest, request)
        if request.mode == "preview":
            found = scan.read(spark, request.kafka, topic) if topic is not None and not topic.is_empty else None
            for line in preview.lines(change, layout, found):
                logger.info(f"{request.model}: {line}")
            return _publication("dry run, nothing published: ", request.topic, change)
        made = topic is None
        if topic is None:
            topic = topics.create(admin, request.topic, request.wanted)
            topics.check_rights(topic, *rights)
        else:
            _moved(topics.moved(admin, topic), request)
    for warning in warnings:
        logger.warning(warning)
    delivery = None
    if change.to_write:
        delivery = deliver(_records(spark, change, layout, topic, request), partitioner, topic, request, change.messages)
    expose(spark, layout, request, made, topic, delivery, change.keys_after, before)
    _remember(spark, change, part, topic, delivery, request)
    return _publication("", request.topic, change, delivery)


def partitioner_of(request: Request) -> Partitioner:
    """The model's partitioner; a function of the user's is found now, before anything is written."""
    return partitioners.load(request.options.sink_partitioner, request.options.sink_partitioner_class, request.folder)


def check_size(admin: KafkaAdminClient, topic: Topic | None, largest: int, request: Request) -> None:
    """Refuse a message that is too large, where that is known before it is compressed."""
    if not request.transactional_id and largest > spark_sink.MAX_REQUEST_SIZE // 2:
        allowed = topics.largest_message(admin, request.topic, None if topic else request.wanted)
        spark_sink.check_size(request.model, largest, allowed, request.kafka.properties)


def deliver(records: DataFrame, partitioner: Partitioner, topic: Topic, request: Request, messages: int) -> Delivery:
    """Place what is allowed, and write it with the guarantee that the model asks for."""
    options = request.options
    sink: Sink
    if request.transactional_id:
        sink = _transaction_sink(options.sink_parallelism)
    else:
        sink = SparkSink("none" if options.sink_delivery_guarantee == "none" else "at-least-once", options.sink_parallelism)
    placed = partitioners.place(records, partitioner, topic.partitions)
    target = Target(topic.name, topic.partitions, request.kafka, request.transactional_id)
    return replace(sink.deliver(placed, target), records=messages)


def _transaction_sink(parallelism: int | None = None) -> TransactionSink:
    # Only now: pyarrow and numpy would slow down every dbt command that writes no transaction.
    from dbt.adapters.upsert_kafka.sinks.transaction import TransactionSink

    return TransactionSink(parallelism)


def _records(spark: SparkSession, change: Changes, layout: Records, topic: Topic, request: Request) -> DataFrame:
    if not isinstance(layout.value_format, ChangelogFormat):
        return change.records()
    return change_events.records(change, None if topic.is_empty else scan.read(spark, request.kafka, topic), layout)


def _reconciled(spark: SparkSession, rows: DataFrame, request: Request) -> DataFrame:
    shown = request.existing is not None and request.existing.is_view and not request.full_refresh
    compares = shown and request.on_schema_change not in ("ignore", "sync_all_columns")
    exposed = views.columns(spark, request.relation) if compares else None
    return schema_changes.reconcile(request.model, rows, exposed, request.on_schema_change)


def layout_of(rows: DataFrame, request: Request) -> Records:
    layout = checked_layout(rows, request.model, request.options, request.topic)
    layout = layout.prepared(request.registry, writes=request.mode == "publish")
    if too_long := views.length_problem(rows.sparkSession, _view(layout, request)):
        raise OptionsError(f"{request.model}: {too_long}")
    return layout


def checked_layout(rows: DataFrame, model: str, options: ModelOptions, topic: str) -> Records:
    """How the rows become records, if the formats can carry them; asks no service."""
    check_columns(options, model, rows.columns)
    layout = records.layout(options, topic, rows.schema)
    problems = layout.problems() + records.expression_problems(options, rows)
    if problems:
        raise OptionsError("\n".join(f"{model}: {problem}" for problem in problems))
    return layout


def _old_keys_are_foreign(before: Mapping[str, str], layout: Records, topic: Topic | None, request: Request) -> bool:
    if request.existing is None or topic is None:
        return False
    keys = before.get(views.KEY_LAYOUT)
    return schema_changes.check_key(request.model, keys, layout.key_layout(), not topic.is_empty, request.full_refresh)


def _policy(request: Request, old_keys_are_foreign: bool) -> Policy:
    options = request.options
    return Policy(
        update_mode=options.update_mode or "upsert",
        writes_nulls=not options.sink_ignore_retraction,
        deletes_missing=options.missing_keys != "keep" or request.full_refresh,
        deletes_foreign=options.foreign_keys == "delete" or old_keys_are_foreign,
        takes_latest=options.on_duplicate_key == "latest",
        republishes=request.full_refresh,
    )


def _compare(
    spark: SparkSession, rows: DataFrame, layout: Records, topic: Topic | None, policy: Policy, request: Request
) -> tuple[Changes, Part | None]:
    """The change, and in what the rows differ from the last snapshot if that was of use."""
    encoded = layout.encode_to_compare(rows, request.options)
    plain = not isinstance(layout.value_format, ChangelogFormat) and not policy.takes_latest
    if topic is None or topic.is_empty:
        change = changes.compare(encoded, None, layout, policy, is_watched=bool(request.not_null))
        return change if plain else replace(change, digest=None), None
    if not (plain and snapshots.is_worth_it(topic)):
        return _compare_with_topic(spark, encoded, layout, topic, policy, request), None
    held = hold(encoded) if request.not_null else keep(encoded)
    digest = snapshots.digest(held)
    snapshot = snapshots.load(spark, request.relation, topic, request.places_by_default)
    part = None
    if snapshot is not None and not policy.republishes:
        if snapshot.is_of(digest):
            return changes.none(held, digest.rows, snapshot.keys, policy), None
        part = snapshot.differing(held) if policy.is_complete else None
    if snapshot is not None and part is not None and part.can_be_added:
        some = part.of_rows(held, have_nulls=digest.nulls > 0)
        change = changes.compare_part(some, part.latest(), layout, policy, digest.rows, snapshot.keys)
        return replace(change, digest=digest if change.to_write else None), part
    if snapshot is not None and (latest := snapshot.latest()) is not None:
        change = changes.compare(held, latest, layout, policy, keeps_everything=True)
    else:
        change = _compare_with_topic(spark, held, layout, topic, policy, request, keeps_everything=True)
    return replace(change, digest=digest), None


def _compare_with_topic(
    spark: SparkSession,
    encoded: DataFrame,
    layout: Records,
    topic: Topic,
    policy: Policy,
    request: Request,
    keeps_everything: bool = False,
) -> Changes:
    found = change_events.live(scan.read(spark, request.kafka, topic), layout)
    change = changes.compare(encoded, scan.latest(found, split_keys=False), layout, policy, keeps_everything)
    if change.split_keys:
        logger.warning(
            f"{request.model}: {change.split_keys} keys of topic '{topic.name}' are in more than one partition, "
            "so another writer placed them; the record with the latest timestamp counts"
        )
        again = changes.compare(encoded, scan.latest(found, split_keys=True), layout, policy)
        change = replace(again, split_keys=change.split_keys)
    return change


def _remember(
    spark: SparkSession, change: Changes, part: Part | None, before: Topic, delivery: Delivery | None, request: Request
) -> None:
    """Keep a snapshot for the next run, if the topic holds what this run wrote and nothing else was written meanwhile."""
    keys, digest = change.keys_after, change.digest
    if digest is None or keys < snapshots.FEWEST_ROWS or not change.is_all:
        return
    if request.options.sink_delivery_guarantee == "none":
        return
    with request.kafka.admin() as admin:
        topic = topics.describe(admin, request.topic)
    # A transaction leaves a marker in every partition that it wrote to.
    markers = len(delivery.offsets or {}) if delivery and request.transactional_id else 0
    written = sum(topic.end.values()) - sum(before.end.values()) if topic else None
    if topic is None or topic.id != before.id or written != change.messages + markers:
        return
    if part is not None:
        snapshots.add(spark, request.relation, change.log(), keys, digest, topic, part)
    else:
        snapshots.save(spark, request.relation, change.state(), keys, digest, topic, request.places_by_default)


def expose(
    spark: SparkSession,
    layout: Records,
    request: Request,
    made: bool = False,
    topic: Topic | None = None,
    delivery: Delivery | None = None,
    keys: int | None = None,
    before: Mapping[str, str] | None = None,
) -> None:
    """Show the topic as the relation.

    Args:
        before: the relation's state, if it is known.
        keys: how many live keys the topic has now, if that is known.
    """
    published = request.mode == "publish"
    owner = views.Ownership(request.project, request.options.bootstrap_servers, made)
    former = views.expose(
        spark,
        request.relation,
        request.existing,
        request.topic,
        request.kafka,
        layout,
        published,
        _view(layout, request),
        request.comments,
        owner,
        end=_end(topic, delivery) if topic and delivery else None,
        keys=keys,
        before=before,
    )
    if former is not None:
        logger.warning(
            f"{request.model}: publishes to '{request.topic}' now; its former topic '{former}' is left as it is "
            "(dbt run-operation orphan_topics lists it if this project made it)"
        )


def _view(layout: Records, request: Request) -> str:
    """The query that shows the topic as the relation."""
    skips = request.options.ignore_parse_errors
    if request.options.materialization != KAFKA:
        return views.last_per_key(request.relation, layout, skips)
    return f"SELECT * FROM {reading.query(layout, views.name(request.relation.topic_table), per_key=False, skips=skips)}"


def _end(topic: Topic, delivery: Delivery) -> dict[int, int] | None:
    """Where the topic's partitions end after the delivery, as far as the sink was told."""
    if delivery.offsets is None:
        return None
    marker = 1 if delivery.transactional_id else 0
    return {**topic.end, **{partition: last + 1 + marker for partition, (_, last) in delivery.offsets.items()}}


def _moved(warnings: list[str], request: Request) -> None:
    """A topic that moved is a warning; where the run is one transaction on what it compared with, a refusal."""
    if warnings and request.transactional_id:
        raise GuardError(f"{request.model}: {warnings[0]}. Nothing was written by this run.")
    _warn(request.model, warnings)


def _warn(model: str, warnings: list[str]) -> None:
    for warning in warnings:
        logger.warning(f"{model}: {warning}")


def _publication(prefix: str, topic: str, change: Changes, delivery: Delivery | None = None) -> Publication:
    inserted, updated, deleted, unchanged = change[INSERT], change[UPDATE] + change[REPUBLISH], change[DELETE], change[UNCHANGED]
    return Publication(
        _message=f"{prefix}+{inserted} ~{updated} -{deleted} ={unchanged}",
        rows_affected=0 if prefix else inserted + updated + deleted,
        topic=topic,
        inserted=inserted,
        updated=updated,
        deleted=deleted,
        unchanged=unchanged,
        dropped=change[NULL],
        foreign=change[FOREIGN],
        **(described(delivery) if delivery else {}),
    )


def described(delivery: Delivery) -> dict[str, Any]:
    offsets = {str(partition): list(ends) for partition, ends in (delivery.offsets or {}).items()}
    return {**asdict(delivery), "partitions_written": len(offsets), "offsets": offsets}
