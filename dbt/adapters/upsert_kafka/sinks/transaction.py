"""Delivery in one Kafka transaction: `exactly-once`. All records become visible to read_committed readers at once, or none.

The steps, of which `TransactionSink.deliver` repeats the last two, with the epoch that the abort got, if Spark lost a task:

    encode   Spark tasks turn the records into record batches, which Spark keeps
    open     the driver gets a producer id and epoch for the transactional id, and checks that the topic is as it was compared
    write    Spark tasks write the batches, each task to partitions that no other task writes to
    commit   the driver ends the transaction; if the write failed, it aborts the transaction instead

No record passes through the driver. The protocol is left to `protocol`, the work of the Spark tasks to `task`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa
from dbt.adapters.events.logging import AdapterLogger
from kafka.errors import KafkaError
from pyspark import cloudpickle
from pyspark.errors import PySparkAttributeError
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.errors import DeliveryError, UpsertKafkaError, lacks
from dbt.adapters.upsert_kafka.kafka_client import brokers, internals, oauth, tls, topics
from dbt.adapters.upsert_kafka.sinks import Delivery, Sink, Target, murmur2, protocol, record_batch, task
from dbt.adapters.upsert_kafka.sinks.protocol import Client, Writer
from dbt.adapters.upsert_kafka.sinks.record_batch import HEADER_BYTES, MAX_RECORD_OVERHEAD, Encoder, Producer, stamp
from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS, Cause, Failure, classify

logger = AdapterLogger("upsert_kafka")

DEFAULTS = {
    "compression.type": "lz4",
    "batch.size": str(512 * 1024),
    "delivery.timeout.ms": "120000",
    # Kafka's default of transaction.max.timeout.ms. The broker aborts a write that takes longer.
    "transaction.timeout.ms": "900000",
}
ATTEMPTS = 3
STATE_PARTITION = 0
VISIBLE_SECONDS = 30
ARROW_ROWS, BATCHES_PER_ARROW_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch", 32
NO_LONGER_OURS = (Cause.FENCED, Cause.TRANSACTION_ENDED)
"""The transaction is over, or belongs to a newer epoch of the transactional id. Nothing is left to abort."""
REPEATED = (Cause.TASK_LOST, Cause.TRANSACTION_ENDED)
"""The same batches may succeed in a new transaction. Brokers call a partition that they could not verify "transaction ended" too;
if it really was, then the abort is refused and nothing is repeated."""

# What readers may see after a failure.
NOTHING_WRITTEN = "Nothing was written."
NOTHING_VISIBLE = "Nothing of this run is visible to read_committed readers; the next run writes it."
NOT_ABORTED = (
    "Nothing of this run will be visible to read_committed readers, but its transaction could not be aborted now: "
    "until the next run, or for at most {} s, they do not see what others write after it."
)
COMMIT_REFUSED = "Nothing of this run is visible, unless the answer to its commit was lost."
COMMIT_NOT_CONFIRMED = (
    "The commit was not confirmed: either all of this run is visible or nothing; the next run compares and completes it."
)

_task_keys: dict[int, list[int]] = {}
"""By the number of tasks: for each task a number that Spark's hash partitioning sends to it."""

# A cluster's workers need not have this package.
for module in (murmur2, record_batch, protocol, task, internals, tls, oauth):
    cloudpickle.register_pickle_by_value(module)


class WriteError(DeliveryError):
    """A transaction was not committed.

    Args:
        failure: what happened.
        readers: what readers of the topic may see now.
        next_producer: for the next transaction, if this one was aborted.
    """

    def __init__(self, topic: str, failure: Failure, readers: str, next_producer: Producer | None = None) -> None:
        super().__init__(f"Topic '{topic}': {failure.reason}. {readers}")
        self.failure = failure
        self.next_producer = next_producer
        self._is_over = readers == NOTHING_WRITTEN or next_producer is not None

    @property
    def may_be_repeated(self) -> bool:
        """Whether the same batches may succeed in a new transaction."""
        return self.failure.cause in REPEATED and self._is_over


class TransactionSink(Sink):
    """One Kafka transaction for all records.

    Args:
        parallelism: number of Spark tasks that write, at most one for each partition; by default as many as run at once.
    """

    def __init__(self, parallelism: int | None = None) -> None:
        self._parallelism = parallelism

    def recover(self, target: Target) -> None:
        """Abort the transaction that a killed run left open; until then read_committed readers see nothing that came after it."""
        transaction = self._transaction(target)
        with transaction.client() as client:
            transaction.open(client)

    def deliver(self, records: DataFrame, target: Target) -> Delivery:
        transaction = self._transaction(target)
        batches: DataFrame | None = None
        producer: Producer | None = None
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if batches is None:
                    batches = transaction.encode(records)
                return transaction.deliver(batches, producer)
            except WriteError as error:
                if not error.may_be_repeated:
                    raise
                logger.debug(f"Topic '{target.topic}': write {attempt} of {ATTEMPTS} was aborted: {error.failure.reason}")
                last, producer = error.failure, error.next_producer
        raise DeliveryError(
            f"Topic '{target.topic}': Spark lost tasks in {ATTEMPTS} writes, the last time with: {last.reason}. {NOTHING_VISIBLE}"
        )

    def _transaction(self, target: Target) -> _Transaction:
        if target.transactional_id is None:
            raise ValueError("a transaction needs a transactional id")
        return _Transaction(target, target.transactional_id, _limits(target), self._parallelism)


@dataclass(frozen=True)
class _Limits:
    """What the brokers allow."""

    batch_bytes: int
    timeout_ms: int


@dataclass(frozen=True)
class _Abort:
    """How an abort ended."""

    readers: str
    """What they may see now."""
    next_producer: Producer | None = None
    """Set if the transaction was aborted. No other run has used the transactional id since it was opened."""
    no_longer_ours: Failure | None = None
    """Set if a newer run has taken over the transactional id, or the broker has ended the transaction."""


class _Transaction:
    """The steps of one delivery. Each step raises WriteError if it fails."""

    def __init__(self, target: Target, transactional_id: str, limits: _Limits, parallelism: int | None) -> None:
        self._target = target
        self._id = transactional_id
        self._limits = limits
        self._parallelism = parallelism
        self._arguments = target.kafka.python_client()
        self._timeout = int(_property(target, "delivery.timeout.ms")) / 1000
        self._opened_at = time.monotonic()

    def encode(self, records: DataFrame) -> DataFrame:
        """Compute the batches before the transaction opens.

        It is open only while they are written, and a repetition writes the same batches.
        """
        columns = [name for name in ("key", "value", "partition", "headers", "timestamp") if name in records.columns]
        if "seq" in records.columns:
            # Records of one key get into batches of one task, which are written in the order of that task.
            records = records.repartition("key").sortWithinPartitions("seq")
        encode = task.encoder(self._target.partitions, self._limits.batch_bytes, _property(self._target, "compression.type"))
        try:
            return checkpoint(records.select(*columns).mapInArrow(encode, task.BATCHES))
        except SPARK_ERRORS as error:
            raise self._error(self._classify(error), NOTHING_WRITTEN) from None

    def deliver(self, batches: DataFrame, producer: Producer | None = None) -> Delivery:
        """Open, write, and commit or abort.

        Args:
            producer: of an aborted transaction of this delivery. No other run has written since then, or this one is fenced.
        """
        self._opened_at = time.monotonic()
        with self.client() as client:
            if producer is None:
                producer = self.open(client)
                self._check()
            try:
                reports = self._write(batches, producer)
                delivery = self._delivery(reports)
                if reports:
                    self._write_state(client, producer, delivery)
            except BaseException as error:
                # Also for Ctrl-C: an open transaction blocks the topic's readers until it times out.
                abort = self._abort(producer)
                if not isinstance(error, (*SPARK_ERRORS, KafkaError)):
                    raise
                raise self._write_error(error, abort) from None
            if reports:
                self._commit(client, producer)
        if reports:
            self._wait_until_visible(reports)
        return delivery

    def _delivery(self, reports: list[Row]) -> Delivery:
        return Delivery(
            delivery="exactly-once",
            records=sum(report.records for report in reports),
            bytes=sum(report.bytes for report in reports),
            transactional_id=self._id,
            offsets={report.partition: (report.first_offset, report.last_offset) for report in sorted(reports)},
        )

    def _write_state(self, client: Client, producer: Producer, delivery: Delivery) -> None:
        """Write the topic's state record in the same transaction, last: other runs wait for it only until the commit."""
        if (state := self._target.plan.state) is None:
            return
        key, value = state.message(delivery)
        batch = Encoder("none").encode(int(time.time() * 1000), pa.array([key]), pa.array([value]), None)
        writer = Writer(client, producer, state.topic)
        writer.add_partitions([STATE_PARTITION])
        writer.write(STATE_PARTITION, 1, stamp(batch, producer, writer.next_sequence(STATE_PARTITION)))
        writer.flush()

    def client(self) -> Client:
        state = self._target.plan.state
        try:
            return Client(self._arguments, self._timeout, state.topic if state else None)
        except KafkaError as error:
            raise self._error(self._classify(error), NOTHING_WRITTEN) from None

    def open(self, client: Client) -> Producer:
        try:
            return client.open(self._id, self._limits.timeout_ms)
        except KafkaError as error:
            raise self._error(self._classify(error), NOTHING_WRITTEN) from None

    def _check(self) -> None:
        """Check that the topic is as the run compared with it, now that older runs are fenced and a newer one fences this."""
        if self._target.plan.check is None:
            return
        try:
            self._target.plan.check()
        except KafkaError as error:
            raise self._error(self._classify(error), NOTHING_WRITTEN) from None

    def _write(self, batches: DataFrame, producer: Producer) -> list[Row]:
        spark = batches.sparkSession
        tasks = min(self._target.partitions, self._parallelism or _parallel_tasks(spark))
        by_task = batches.repartition(tasks, _task_key(spark, tasks)).sortWithinPartitions("task", "number")
        assignment = task.Assignment(producer, self._target.topic, self._arguments, self._timeout)
        with _small_arrow_batches(spark):
            return by_task.mapInArrow(task.writer(assignment), task.REPORT).collect()

    def _abort(self, producer: Producer) -> _Abort:
        """Abort the transaction and fence tasks that still write."""
        try:
            # A new client: an interrupt may have left the other one with half an answer.
            with self.client() as client:
                return _Abort(NOTHING_VISIBLE, client.abort(producer, self._limits.timeout_ms))
        except (KafkaError, UpsertKafkaError) as error:
            failure = self._classify(error)
            if failure.cause in NO_LONGER_OURS:
                return _Abort(NOTHING_VISIBLE, no_longer_ours=failure)
            return _Abort(NOT_ABORTED.format(self._limits.timeout_ms // 1000))

    def _write_error(self, error: BaseException, abort: _Abort) -> WriteError:
        failure = self._classify(error)
        if failure.cause in REPEATED and abort.no_longer_ours is not None:
            # Not to be repeated: that would fence the newer run.
            failure = abort.no_longer_ours
        return WriteError(self._target.topic, failure, abort.readers, abort.next_producer)

    def _commit(self, client: Client, producer: Producer) -> None:
        try:
            client.commit(producer)
        except KafkaError as error:
            failure = self._classify(error)
            raise self._error(failure, COMMIT_REFUSED if failure.cause in NO_LONGER_OURS else COMMIT_NOT_CONFIRMED) from None

    def _wait_until_visible(self, reports: list[Row]) -> None:
        """Wait until every partition has its commit marker, so that whoever reads next sees all records."""
        last = {report.partition: report.last_offset for report in reports if report.last_offset is not None}
        until = time.monotonic() + VISIBLE_SECONDS
        try:
            while time.monotonic() < until:
                ends = topics.ends(self._target.admin, self._target.topic, last)
                if all(ends[p] > offset for p, offset in last.items()):
                    return
                time.sleep(0.02)
        except (KafkaError, UpsertKafkaError) as error:
            # The transaction is committed; only the moment of its visibility is unknown.
            logger.debug(f"Topic '{self._target.topic}': committed, end offsets unknown: {error!r}")
            return
        logger.debug(f"Topic '{self._target.topic}': committed, but not visible yet because of another open transaction")

    def _classify(self, error: BaseException) -> Failure:
        """The cause of an error, with what is known about this transaction. The whole text goes to the debug log."""
        logger.debug(f"Topic '{self._target.topic}', transactional id '{self._id}': {type(error).__name__}: {error}")
        failure = classify(error, self._target.kafka.bootstrap_servers)
        timeout = self._limits.timeout_ms
        given = f"transaction.timeout.ms={timeout}"
        match failure.cause:
            case Cause.TRANSACTION_TIMEOUT_REFUSED:
                why = f"{given} is more than the brokers' transaction.max.timeout.ms; lower it in `properties`"
            case Cause.TRANSACTIONAL_ID_DENIED:
                why = lacks(self._target.kafka.user, "WRITE", "transactional id", self._id)
            case cause if cause in NO_LONGER_OURS and time.monotonic() - self._opened_at >= timeout / 1000:
                why = f"the write took longer than {given}, so the broker aborted it; raise it in `properties`"
            case _:
                return failure
        return replace(failure, reason=why)

    def _error(self, failure: Failure, readers: str) -> WriteError:
        return WriteError(self._target.topic, failure, readers)


@contextmanager
def _small_arrow_batches(spark: SparkSession) -> Iterator[None]:
    """Give Python workers few rows at once: a row is a whole record batch, and Spark's default number would be gigabytes."""
    before = spark.conf.get(ARROW_ROWS)
    spark.conf.set(ARROW_ROWS, str(BATCHES_PER_ARROW_BATCH))
    try:
        yield
    finally:
        spark.conf.set(ARROW_ROWS, before or "")


def _parallel_tasks(spark: SparkSession) -> int:
    """Tasks that run at once. More of them write no faster, and each starts a Python worker."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkAttributeError:
        # Spark Connect has no such property, but splits a range into as many tasks.
        return spark.range(1 << 12).select(F.spark_partition_id()).distinct().count()


def _task_key(spark: SparkSession, tasks: int) -> Column:
    """A column by which `repartition` sends partition p to task p modulo `tasks`.

    Spark hashes the column. The hash of p itself would leave some tasks without any partition, so p is replaced by a number
    whose hash is known to belong to the task.
    """
    if tasks not in _task_keys:
        candidates = max(64, 32 * tasks)
        found = spark.sql(f"SELECT transform(sequence(0, {candidates}), x -> pmod(hash(x), {tasks})) AS tasks").first()
        assert found is not None
        _task_keys[tasks] = [found.tasks.index(task) for task in range(tasks)]
    return F.element_at(F.array(*map(F.lit, _task_keys[tasks])), F.col("partition") % tasks + 1)


def _property(target: Target, name: str) -> str:
    return target.kafka.properties.get(name, DEFAULTS[name])


def _limits(target: Target) -> _Limits:
    """Ask the brokers what they allow. Without the right to ask, Kafka's defaults apply."""
    batch_bytes, timeout = int(_property(target, "batch.size")), int(_property(target, "transaction.timeout.ms"))
    try:
        largest = int(topics.config(target.admin, target.topic)["max.message.bytes"])
        batch_bytes = min(batch_bytes, largest - HEADER_BYTES - MAX_RECORD_OVERHEAD)
        longest = int(brokers.config(target.admin)["transaction.max.timeout.ms"])
    except (KafkaError, KeyError) as error:
        # The answer has no settings for a topic that the user may not describe.
        logger.debug(f"Topic '{target.topic}': limits not known: {error!r}")
        return _Limits(batch_bytes, timeout)
    if timeout > longest:
        if "transaction.timeout.ms" in target.kafka.properties:
            raise DeliveryError(
                f"Topic '{target.topic}': transaction.timeout.ms={timeout} (`properties`) is more than the brokers' "
                f"transaction.max.timeout.ms={longest}. Nothing was written."
            )
        timeout = longest
    return _Limits(batch_bytes, timeout)
