"""From a model's SELECT over `stream()` to a topic: the steps of a stream, in order. Read this first.

    analyse -> decide -> begin -> run (batches) -> finish -> expose

`plan` has what can't be a stream, `start` where it begins, `batches` what happens to each micro-batch.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.catalog import views
from dbt.adapters.upsert_kafka.dbt_warnings import warn_about
from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError, StateError, UpsertKafkaError, count_of
from dbt.adapters.upsert_kafka.formats.records import Records
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.publish import deliver, encode, expose, schema_changes
from dbt.adapters.upsert_kafka.publish.memory import Memory, layout_of, recall
from dbt.adapters.upsert_kafka.publish.request import Delivered, Request
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS
from dbt.adapters.upsert_kafka.spark.internals import HadoopFiles, local_checkpoint_manager
from dbt.adapters.upsert_kafka.spark.settings import default_shuffle_partitions
from dbt.adapters.upsert_kafka.state.keeper import LEASES, Held
from dbt.adapters.upsert_kafka.state.record import SourceOffsets
from dbt.adapters.upsert_kafka.state.store import Access
from dbt.adapters.upsert_kafka.streaming import delta, plan, refresh, rows, sources, start
from dbt.adapters.upsert_kafka.streaming.batches import Batches
from dbt.adapters.upsert_kafka.streaming.checkpoints import MANAGER_SETTING, Checkpoint
from dbt.adapters.upsert_kafka.streaming.delta import DeltaTable
from dbt.adapters.upsert_kafka.streaming.plan import StreamPlan
from dbt.adapters.upsert_kafka.streaming.sources import StreamSource

logger = AdapterLogger("upsert_kafka")
# The error of a batch is reported by `failure`. Py4J also logs it, with a stack trace, to stderr.
logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)

POLL_SECONDS = 0.2
SHUFFLE, SPARKS_SHUFFLE = "spark.sql.shuffle.partitions", "200"
_CAUSE = re.compile(r"terminated with exception: (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)


@dataclass
class Streamed(Delivered):
    """The result of a stream that has ended. dbt prints the message; run_results.json has all fields."""

    topic: str = ""
    events: int = 0
    """Read from the sources."""
    batches: int = 0
    written: int = 0
    deleted: int = 0
    dropped: int = 0
    repeated: int = 0
    """Batches that an earlier run had written, and that were only computed again."""


@dataclass(frozen=True)
class StreamModel:
    """A model with a trigger."""

    spark: SparkSession
    sql: str
    """Selects from the views of the sources."""
    sources: Sequence[StreamSource]
    request: Request
    location: str
    """Where the checkpoints are."""
    is_continuous: bool = False
    """Whether this process runs the stream until it is stopped, and holds its lease."""
    is_cancelled: Callable[[], bool] = lambda: False
    tables: Sequence[DeltaTable] = ()
    """Read as streams, besides the sources."""

    def checkpoint(self, query: str) -> Checkpoint:
        return Checkpoint.of(self.spark, self.location, self.request.topic, query)

    def has_checkpoints(self) -> bool:
        """Whether the topic has a checkpoint of any query."""
        return bool(HadoopFiles(self.spark, self.location).names(self.request.topic))


def publish(model: StreamModel) -> Streamed:
    """Publish what is new since the last run, and end. A continuous stream is only prepared: `continuous` starts it."""
    request = model.request
    topics.check_name(request.topic)
    analysed, layout = analyse(model)
    schema_changes.check_mode(request.model, request.on_schema_change)
    before = views.prepare(model.spark, request.model, request.relation)
    if request.mode == "preview":
        return Streamed(_message="dry run, a stream is not previewed; nothing published", topic=request.topic)
    progress: list[Any] = []
    with request.kafka.admin() as admin:
        writer = begin(model, analysed, layout, admin)
        with closing(writer):
            if not model.is_continuous or writer.stream.refresh is not None:
                progress = run_available(model, writer)
                refresh.finish(model.spark, writer)
    expose.expose(model.spark, layout, request, before)
    return _streamed(request, writer, sum(int(p["numInputRows"]) for p in progress))


def analyse(model: StreamModel) -> tuple[StreamPlan, Records]:
    """Check Spark, the sources, the SELECT and the formats, before anything starts.

    Raises:
        GuardError: Spark runs second copies of slow tasks.
        OptionsError: lists what can't be a stream.
    """
    name = model.request.model
    deliver.check_spark(model.spark, model.request)
    if not model.sources and not model.tables:
        raise OptionsError(
            f"model {name}: has trigger={model.request.options.trigger} and reads no stream. Select from "
            "{{ stream(ref('…')) }}, or remove the trigger. Nothing was started."
        )
    problems = [problem for source in model.sources for problem in sources.problems(source)]
    problems += [problem for table in model.tables if (problem := delta.problem(model.spark, table))]
    if problems:
        raise OptionsError("\n".join(f"model {name}: {problem}. Nothing was started." for problem in problems))
    if model.request.checks:
        raise OptionsError(
            f"model {name}: a stream does not check `check` constraints of a contract; remove them, or use a test. "
            "Nothing was started."
        )
    deliver.partitioner_of(model.request)
    analysed = _plan(model)
    return analysed, encode.layout_of(analysed.rows, model.request)


def _plan(model: StreamModel, offsets: SourceOffsets | None = None) -> StreamPlan:
    for source in model.sources:
        sources.create_view(model.spark, source, None if offsets is None else sources.of_source(source, offsets))
    for table in model.tables:
        delta.create_view(model.spark, table)
    try:
        selected = model.spark.sql(model.sql)
    except PySparkException as error:
        raise plan.analysis_error(model.request.model, error) from None
    return plan.checked(model.request.model, selected, model.request.options)


def begin(model: StreamModel, analysed: StreamPlan, layout: Records, admin: KafkaAdminClient) -> Batches:
    """Decide where the stream begins, create the topic, and become its owner."""
    request = model.request
    topic = topics.describe(admin, request.topic)
    if topic is not None:
        topics.check_rights(topic, "READ", "WRITE")
        if request.transactional_id:
            # Comes before the state record is read: it decides what a killed process left open.
            deliver.recover(admin, topic, request)
            topic = topics.describe(admin, request.topic)
    memory = recall(admin, topic, request)
    _check_access(request, memory)
    texts = {source.view: _definition_text(model.spark, source) for source in model.sources}
    texts |= {table.view: table.text() for table in model.tables}
    definition = start.definition(model.sql, texts, layout, request)
    definition |= {f"id of the Delta table {table.name}": table.id(model.spark) for table in model.tables}
    begins = start.decide(
        start.Situation(
            request,
            memory,
            topic,
            model.sources,
            _with_partitions(definition, topic, request),
            analysed.is_stateless and not model.tables,
            model.checkpoint,
            model.has_checkpoints,
            tables=model.tables,
        )
    )
    before = memory.record
    if topic is not None:
        now = layout_of(layout, request.time_zone)
        changed = [] if topic.is_empty else schema_changes.announcements(memory.trusted.layout, now, request)
        warn_about(request.model, [*changed, *topics.differences(topic, request.topic_settings)])
    topic, memory = _claimed(admin, topic, memory.prepared(), request)
    stream = replace(begins.stream, definition=_with_partitions(definition, topic, request))
    if begins.is_new:
        analysed = _plan(model, sources.first_offsets(request.model, model.sources, known=stream.offsets))
    checkpoint = model.checkpoint(stream.query)
    sink = deliver.driver_sink(request)
    writer = Batches(
        request, topic, admin, memory, layout, analysed, checkpoint, stream, sink=sink,
        topic_ids=partial(sources.topic_ids, model.sources),
    )  # fmt: skip
    if begins.is_new:
        writer.write_first(before)
        if begins.former is not None:
            begins.former.files.delete()
    if model.is_continuous:
        LEASES.hold(Held(request.kafka, memory.store, request.topic))
    return writer


def _with_partitions(definition: dict[str, str], topic: Topic | None, request: Request) -> dict[str, str]:
    """The partition of a key depends on the number of partitions. An event that is appended has no earlier one to replace."""
    if topic is None or request.options.appends:
        return definition
    return {**definition, "number of partitions": str(topic.partitions)}


def _claimed(admin: KafkaAdminClient, topic: Topic | None, memory: Memory, request: Request) -> tuple[Topic, Memory]:
    is_created = False
    if topic is None:
        topic, is_created = topics.create_unless_exists(admin, request.topic, request.topic_settings)
        topics.check_rights(topic, "READ", "WRITE")
        if not is_created:
            raise GuardError(
                f"model {request.model}: topic '{topic.name}' was created by another process while this run began. Run again."
            )
    # The first record of the stream is the claim. Another one before it would not be fenced.
    memory = memory.claimed(topic, is_created)
    _check_access(request, memory)
    return topic, memory


def _check_access(request: Request, memory: Memory) -> None:
    if memory.access is not Access.FULL:
        raise StateError(
            f"model {request.model}: a stream keeps its progress in the state topic '{memory.store.topic}', and this user may "
            "not read and write it, or the profile sets `state_topic: none`. Nothing was written. Grant READ, WRITE and CREATE "
            "on it, or set trigger='batch'"
        )


def _definition_text(spark: SparkSession, source: StreamSource) -> str:
    options = source.options
    watermark = {column: delay.total_seconds() for column, delay in options.watermark.items()}
    return json.dumps([source.select(spark), options.topics, options.topic_pattern, watermark])


def start_query(model: StreamModel, writer: Batches, **trigger: Any) -> Any:
    """Start Spark's query.

    Args:
        trigger: of `DataStreamWriter.trigger`.
    """
    encoded = rows.encode(writer.plan, writer.layout, model.request)
    with _settings(model.spark, writer.checkpoint):
        return (
            encoded.writeStream.foreachBatch(writer)
            .outputMode(writer.plan.output_mode.lower())
            .option("checkpointLocation", writer.checkpoint.path)
            .queryName(f"{model.request.topic} {writer.stream.query}")
            .trigger(**trigger)
            .start()
        )


def run_available(model: StreamModel, writer: Batches) -> list[Any]:
    """Process what is there now.

    Returns:
        Spark's progress reports.
    """
    query = start_query(model, writer, availableNow=True)
    try:
        while not query.awaitTermination(POLL_SECONDS):
            if model.is_cancelled():
                query.stop()
                raise GuardError(f"model {model.request.model}: the stream was cancelled; the next run continues.")
    except SPARK_ERRORS as error:
        raise failure(model, writer, error) from None
    return list(query.recentProgress)


def failure(model: StreamModel, writer: Batches, error: BaseException) -> Exception:
    """The error of a query that failed: our own if a batch raised one, otherwise Spark's first line."""
    logger.debug(f"model {model.request.model}: the stream failed: {error}")
    if isinstance(writer.error, UpsertKafkaError):
        return writer.error
    text = str(writer.error or error)
    remedy = start.APPEND_AGAIN if model.request.options.appends else start.START_OVER
    if found_by_delta := delta.failure(model.request.model, model.tables, text, remedy):
        return found_by_delta
    found = _CAUSE.search(text)
    reason = found[1] if found else text.strip().splitlines()[0]
    return UpsertKafkaError(f"model {model.request.model}: the stream failed: {reason[:500]}. The next start continues it.")


@contextmanager
def _settings(spark: SparkSession, checkpoint: Checkpoint) -> Iterator[None]:
    """Settings of a query, which Spark reads when it starts."""
    manager = local_checkpoint_manager(spark) if checkpoint.files.is_local else None
    wanted = {MANAGER_SETTING: manager} if manager else {}
    if spark.conf.get(SHUFFLE) in (SPARKS_SHUFFLE, default_shuffle_partitions()):
        # Not set by the user. Every batch has a task for each, also if it has few rows. The checkpoint keeps the number.
        wanted[SHUFFLE] = str(spark.sparkContext.defaultParallelism)
    before = {name: spark.conf.get(name, "") or "" for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value:
                spark.conf.set(name, value)
            else:
                spark.conf.unset(name)


def _streamed(request: Request, writer: Batches, events: int) -> Streamed:
    counts = writer.counts
    written, deleted = f"{count_of(counts.written, 'key')} written", f", {counts.deleted} deleted" if counts.deleted else ""
    done = f"{counts.written} appended" if request.options.appends else written + deleted
    return Streamed(
        _message=f"topic {request.topic}: {count_of(events, 'event')}, {done}",
        rows_affected=counts.written + counts.deleted,
        topic=request.topic,
        events=events,
        batches=counts.batches,
        written=counts.written,
        deleted=counts.deleted,
        dropped=counts.dropped,
        repeated=counts.repeated,
        records=counts.written + counts.deleted,
        bytes=counts.bytes or None,
        delivery=str(request.options.sink_delivery_guarantee),
        transactional_id=request.transactional_id,
    )
