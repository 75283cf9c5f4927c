"""Delivery in one Kafka transaction: `exactly-once`. All records become visible to read_committed readers at once, or none.

The steps, of which `steps` repeats the last two, with the epoch that the abort got, if Spark lost a task:

    encode   Spark tasks turn the records into record batches, which Spark keeps
    open     the driver gets a producer id and epoch for the transactional id, and checks that the topic is as it was compared
    write    Spark tasks write the batches, each task to partitions that no other task writes to
    commit   the driver ends the transaction; if the write failed, it aborts the transaction instead

No record passes through the driver; `driver` has the exception. This module is Spark's part of it. The order of the steps and
what happens after failures are left to `steps`, the protocol to `protocol`, the work of the Spark tasks to `task`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from dbt.adapters.events.logging import AdapterLogger
from kafka.errors import KafkaError
from pyspark import cloudpickle
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.errors import DeliveryError, UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import brokers, internals, oauth, tls, topics
from dbt.adapters.upsert_kafka.sinks import Delivery, Sink, Target, murmur2, protocol, record_batch, task, writer
from dbt.adapters.upsert_kafka.sinks.protocol import Client
from dbt.adapters.upsert_kafka.sinks.record_batch import HEADER_BYTES, MAX_RECORD_OVERHEAD, Encoder, Producer, stamp
from dbt.adapters.upsert_kafka.sinks.steps import NOTHING_WRITTEN, STATE_PARTITION, Report, Steps
from dbt.adapters.upsert_kafka.sinks.writer import Writer
from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS

logger = AdapterLogger("upsert_kafka")

DEFAULTS = {
    "compression.type": "lz4",
    "batch.size": str(512 * 1024),
    "delivery.timeout.ms": "120000",
    # Kafka's default of transaction.max.timeout.ms. The broker aborts a write that takes longer.
    "transaction.timeout.ms": "900000",
}
VISIBLE_SECONDS = 30
ARROW_ROWS, BATCHES_PER_ARROW_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch", 32
_task_keys: dict[int, list[int]] = {}
"""By the number of tasks: for each task a number that Spark's hash partitioning sends to it."""

# A cluster's workers need not have this package.
for module in (murmur2, record_batch, protocol, writer, task, internals, tls, oauth):
    cloudpickle.register_pickle_by_value(module)


class TransactionSink(Sink):
    """One Kafka transaction for all records.

    Args:
        parallelism: number of Spark tasks that write, at most one for each partition; by default as many as run at once.
    """

    def __init__(self, parallelism: int | None = None) -> None:
        self._parallelism = parallelism

    def recover(self, target: Target) -> None:
        """Abort the transaction that a killed run left open; until then read_committed readers see nothing that came after it."""
        self._transaction(target).recover()

    def deliver(self, records: DataFrame, target: Target) -> Delivery:
        return self._transaction(target, records).deliver()

    def commit_groups(self, target: Target) -> None:
        """Commit the offsets of consumer groups in a transaction without records."""
        self._transaction(target).deliver()

    def _transaction(self, target: Target, records: DataFrame | None = None) -> Transaction:
        if target.transactional_id is None:
            raise ValueError("a transaction needs a transactional id")
        return Transaction(target, target.transactional_id, limits_of(target), self._parallelism, records)


@dataclass(frozen=True)
class Limits:
    """What the brokers allow."""

    batch_bytes: int
    timeout_ms: int


class Transaction(Steps):
    """The steps of one delivery, with Spark tasks that write.

    Args:
        records: to deliver; None if the transaction is only recovered, or only commits the offsets of groups.
    """

    def __init__(
        self, target: Target, transactional_id: str, limits: Limits, parallelism: int | None, records: DataFrame | None = None
    ) -> None:
        super().__init__(target, transactional_id, limits.timeout_ms)
        self._limits = limits
        self._parallelism = parallelism
        self._arguments = target.kafka.python_client()
        self._timeout = int(property_of(target, "delivery.timeout.ms")) / 1000
        self._records = records
        self._batches: DataFrame | None = None

    def connect(self) -> Client:
        state = self._target.plan.state
        return Client(self._arguments, self._timeout, state.topic if state else None)

    def prepare(self) -> None:
        if self._batches is None and self._records is not None:
            self._batches = self.encode(self._records)

    def encode(self, records: DataFrame) -> DataFrame:
        """Compute the batches before the transaction opens.

        It is open only while they are written, and a repetition writes the same batches.
        """
        if "seq" in records.columns:
            # Records of one key get into batches of one task, which are written in the order of that task.
            records = records.repartition("key").sortWithinPartitions("seq")
        encode = task.encoder(self._target.partitions, self._limits.batch_bytes, property_of(self._target, "compression.type"))
        try:
            return checkpoint(records.select(*columns_of(records)).mapInArrow(encode, task.BATCHES))
        except SPARK_ERRORS as error:
            raise self._error(self._classify(error), NOTHING_WRITTEN) from None

    def write_state(self, client: Client, producer: Producer, delivery: Delivery) -> None:
        if (state := self._target.plan.state) is None:
            return
        write_state_record(Writer(client, producer, state.topic), producer, *state.message(delivery))

    def write(self, producer: Producer) -> Sequence[Report]:
        if self._batches is None:
            return []
        spark = self._batches.sparkSession
        tasks = min(self._target.partitions, self._parallelism or _parallel_tasks(spark))
        by_task = self._batches.repartition(tasks, _task_key(spark, tasks)).sortWithinPartitions("task", "number")
        assignment = task.Assignment(producer, self._target.topic, self._arguments, self._timeout)
        with _small_arrow_batches(spark):
            return checked(by_task.mapInArrow(task.writer(assignment), task.REPORT).collect())

    def wait_until_visible(self, reports: Sequence[Report]) -> None:
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


def checked(reports: Sequence[Any]) -> Sequence[Any]:
    """Rows of `task.REPORT`, unless some are errors of tasks.

    Raises:
        PySparkException: with the errors, as if Spark had raised them.
    """
    if errors := [report.error for report in reports if report.error is not None]:
        raise PySparkException("\n".join(errors))
    return reports


def write_state_record(out: Writer, producer: Producer, key: bytes, value: bytes) -> None:
    """Write a record to the state topic, which `out` writes to."""
    batch = Encoder("none").encode(int(time.time() * 1000), pa.array([key]), pa.array([value]), None)
    out.add_partitions([STATE_PARTITION])
    out.write(STATE_PARTITION, 1, stamp(batch, producer, out.next_sequence(STATE_PARTITION)))
    out.flush()


def columns_of(records: DataFrame) -> list[str]:
    return [name for name in ("key", "value", "partition", "headers", "timestamp") if name in records.columns]


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


def property_of(target: Target, name: str) -> str:
    return target.kafka.properties.get(name, DEFAULTS[name])


def limits_of(target: Target) -> Limits:
    """Ask the brokers what they allow. Without the right to ask, Kafka's defaults apply."""
    batch_bytes, timeout = int(property_of(target, "batch.size")), int(property_of(target, "transaction.timeout.ms"))
    try:
        largest = int(topics.config(target.admin, target.topic)["max.message.bytes"])
        batch_bytes = min(batch_bytes, largest - HEADER_BYTES - MAX_RECORD_OVERHEAD)
        longest = int(brokers.config(target.admin)["transaction.max.timeout.ms"])
    except (KafkaError, KeyError) as error:
        # The answer has no settings for a topic that the user may not describe.
        logger.debug(f"Topic '{target.topic}': limits not known: {error!r}")
        return Limits(batch_bytes, timeout)
    if timeout > longest and target.transactional_id is not None:
        if "transaction.timeout.ms" in target.kafka.properties:
            raise DeliveryError(
                f"Topic '{target.topic}': transaction.timeout.ms={timeout} (`properties`) is more than the brokers' "
                f"transaction.max.timeout.ms={longest}. Nothing was written."
            )
        timeout = longest
    return Limits(batch_bytes, timeout)
