"""Delivery in one Kafka transaction: `exactly-once`.

Spark's tasks make record batches of the records and keep them. Then the driver opens the transaction, every task writes with its
producer id to partitions that it alone owns, the driver commits: one decision, after which readers with `read_committed` see all
of it or nothing. No record passes through the driver.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

from dbt.adapters.events.logging import AdapterLogger
from kafka.errors import KafkaError
from pyspark import cloudpickle
from pyspark.errors import PySparkAttributeError
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka import murmur2, oauth, tls, topics
from dbt.adapters.upsert_kafka.errors import DeliveryError, UpsertKafkaError, lacks
from dbt.adapters.upsert_kafka.held import hold
from dbt.adapters.upsert_kafka.sinks import Delivery, Sink, Target, protocol, record_batch, task
from dbt.adapters.upsert_kafka.sinks.failures import SPARK_ERRORS, first_line, reason
from dbt.adapters.upsert_kafka.sinks.protocol import Client
from dbt.adapters.upsert_kafka.sinks.record_batch import HEADER_BYTES, MOST_OVERHEAD, Identity

logger = AdapterLogger("upsert_kafka")

DEFAULTS = {
    "compression.type": "lz4",
    "batch.size": str(512 * 1024),
    "delivery.timeout.ms": "120000",
    # Kafka's default maximum; a write that takes longer is aborted by the broker.
    "transaction.timeout.ms": "900000",
}
ATTEMPTS = 3
VISIBLE_SECONDS = 30
ARROW_ROWS, BATCHES_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch", 32
# Signs of a task that was lost or repeated, not refused: the same write with a new epoch may succeed.
AGAIN = re.compile(
    "SecondAttemptError|OutOfOrderSequence|UnknownProducerId|TransactionAbortable"
    "|Python worker exited unexpectedly|Python worker failed to connect back|ExecutorLostFailure|FetchFailed"
)
FENCED = re.compile("ProducerFenced|InvalidProducerEpoch|InvalidProducerIdMapping|InvalidTxnState")

_salts: dict[int, list[int]] = {}
"""By the number of tasks: for each task a number that Spark's hash sends there."""

NOTHING_VISIBLE = "Nothing of this run is visible to read_committed readers; the next run writes it."
NOT_ABORTED = (
    "Nothing of this run will be visible to read_committed readers, but its transaction could not be aborted now: "
    "until the next run, or for at most {} s, they do not see what others write after it."
)

# A cluster's workers need not have this package.
for module in (murmur2, record_batch, protocol, task, tls, oauth):
    cloudpickle.register_pickle_by_value(module)


@dataclass(frozen=True)
class _Limits:
    """What the brokers allow."""

    batch_bytes: int
    timeout_ms: int


class TransactionSink(Sink):
    """One Kafka transaction for all records.

    Args:
        parallelism: number of Spark tasks that write, at most one for each partition; Spark's number if not given.
    """

    def __init__(self, parallelism: int | None = None) -> None:
        self._parallelism = parallelism

    def recover(self, target: Target) -> None:
        """Abort what a killed run left open: until then readers see nothing of what came after it, and a compare neither."""
        run = self._run(target)
        with run.client() as client:
            run.open(client)

    def deliver(self, records: DataFrame, target: Target) -> Delivery:
        batches: DataFrame | None = None
        for attempt in range(1, ATTEMPTS + 1):
            run = self._run(target)
            try:
                if batches is None:
                    batches = run.encode(records)
                return run.deliver(batches)
            except _AgainError as again:
                logger.debug(f"Topic '{target.topic}': write {attempt} of {ATTEMPTS} was aborted: {again}")
                last = again
        raise DeliveryError(
            f"Topic '{target.topic}': Spark lost tasks in {ATTEMPTS} writes, the last time with: {last}. {NOTHING_VISIBLE}"
        )

    def _run(self, target: Target) -> _Run:
        if target.transactional_id is None:
            raise ValueError("a transaction needs a transactional id")
        return _Run(target, target.transactional_id, _limits(target), self._parallelism)


class _AgainError(Exception):
    """The transaction is aborted and may be tried again."""


class _Run:
    """One try: open, write, commit; or abort."""

    def __init__(self, target: Target, transactional_id: str, limits: _Limits, parallelism: int | None) -> None:
        self._target = target
        self._id = transactional_id
        self._limits = limits
        self._parallelism = parallelism
        self._arguments = target.kafka.python_client()
        self._patience = int(_property(target, "delivery.timeout.ms")) / 1000
        self._started = time.monotonic()

    def encode(self, records: DataFrame) -> DataFrame:
        """Make the batches now and keep them: the transaction is open only while bytes flow, and a second try sends the same."""
        columns = [name for name in ("key", "value", "partition", "headers", "timestamp") if name in records.columns]
        if "seq" in records.columns:
            # Records of a key become batches of one task, which are written in its order.
            records = records.repartition("key").sortWithinPartitions("seq")
        encode = task.encoder(self._target.partitions, self._limits.batch_bytes, _property(self._target, "compression.type"))
        try:
            return hold(records.select(*columns).mapInArrow(encode, task.BATCHES))
        except SPARK_ERRORS as error:
            if AGAIN.search(str(error)):
                raise _AgainError(first_line(error)) from None
            raise self._error(error, "Nothing was written.") from None

    def deliver(self, batches: DataFrame) -> Delivery:
        self._started = time.monotonic()
        with self.client() as client:
            identity = self.open(client)
            try:
                reports = self._write(batches, identity)
            except BaseException as error:
                # Also for Ctrl-C: a transaction left open would hold back the topic's readers until it times out.
                self._fail(identity, error)
            if reports:
                self._commit(client, identity)
        if reports:
            self._wait_until_visible(reports)
        return Delivery(
            delivery="exactly-once",
            records=sum(report.records for report in reports),
            bytes=sum(report.bytes for report in reports),
            transactional_id=self._id,
            offsets={report.partition: (report.first_offset, report.last_offset) for report in sorted(reports)},
        )

    def client(self) -> Client:
        try:
            return Client(self._arguments, self._patience)
        except KafkaError as error:
            raise self._error(error, "Nothing was written.") from None

    def open(self, client: Client) -> Identity:
        try:
            return client.open(self._id, self._limits.timeout_ms)
        except KafkaError as error:
            raise self._error(error, "Nothing was written.") from None

    def _write(self, batches: DataFrame, identity: Identity) -> list[Row]:
        spark = batches.sparkSession
        tasks = min(self._target.partitions, self._parallelism or _slots(spark))
        owned = batches.repartition(tasks, _owner(spark, tasks)).sortWithinPartitions("task", "number")
        assignment = task.Assignment(identity, self._target.topic, self._arguments, self._patience)
        with _few_rows_at_a_time(spark):
            return owned.mapInArrow(task.writer(assignment), task.REPORT).collect()

    def _fail(self, identity: Identity, error: BaseException) -> NoReturn:
        """Abort, and say why."""
        logger.debug(f"Writing topic '{self._target.topic}' failed: {error!r}")
        state, fenced = NOTHING_VISIBLE, None
        try:
            # A new epoch aborts the transaction and fences tasks that still write.
            # By a client of its own: an interrupt may have left the other in the middle of an answer.
            with self.client() as client:
                client.open(self._id, self._limits.timeout_ms, mine=identity)
        except (KafkaError, UpsertKafkaError) as failure:
            logger.debug(f"Aborting '{self._id}' failed: {failure!r}")
            if FENCED.search(repr(failure)):
                fenced = failure
            else:
                state = NOT_ABORTED.format(self._limits.timeout_ms // 1000)
        if not isinstance(error, SPARK_ERRORS):
            raise error
        text = str(error)
        if AGAIN.search(text) and not reason(text, ""):
            if fenced is not None:
                raise self._error(fenced, state) from None
            raise _AgainError(first_line(error)) from None
        raise self._error(error, state) from None

    def _commit(self, client: Client, identity: Identity) -> None:
        try:
            client.commit(identity)
        except KafkaError as error:
            if FENCED.search(repr(error)):
                raise self._error(error, "Nothing of this run is visible, unless the answer to its commit was lost.") from None
            raise self._error(
                error,
                "The commit was not confirmed: all of this run is visible, or nothing; the next run finds out and completes it.",
            ) from None

    def _wait_until_visible(self, reports: list[Row]) -> None:
        """The decision is made; wait until every partition has its marker, so that who reads next sees all of it."""
        last = {report.partition: report.last_offset for report in reports if report.last_offset is not None}
        until = time.monotonic() + VISIBLE_SECONDS
        try:
            with self._target.kafka.admin() as admin:
                while time.monotonic() < until:
                    ends = topics.ends(admin, self._target.topic, last)
                    if all(ends[p] > offset for p, offset in last.items()):
                        return
                    time.sleep(0.02)
        except (KafkaError, UpsertKafkaError) as error:
            # It is committed all the same.
            logger.debug(f"Topic '{self._target.topic}': not known when it is visible: {error!r}")
        logger.debug(f"Topic '{self._target.topic}': committed, but held back for readers by another open transaction")

    def _error(self, error: BaseException, state: str) -> DeliveryError:
        text = f"{type(error).__name__}: {error}"
        logger.debug(f"Topic '{self._target.topic}': {text}")
        timeout = self._limits.timeout_ms
        if "InvalidTransactionTimeout" in text:
            why = (
                f"transaction.timeout.ms={timeout} is more than the brokers' transaction.max.timeout.ms; lower it in `properties`"
            )
        elif "TransactionalIdAuthorization" in text:
            why = lacks(self._target.kafka.user, "WRITE", "transactional id", self._id)
        elif FENCED.search(text) and time.monotonic() - self._started >= timeout / 1000:
            why = (
                f"the write took longer than transaction.timeout.ms={timeout}, so the broker aborted it; raise it in `properties`"
            )
        else:
            why = reason(text, self._target.kafka.bootstrap_servers) or first_line(error)
        return DeliveryError(f"Topic '{self._target.topic}': {why}. {state}")


@contextmanager
def _few_rows_at_a_time(spark: SparkSession) -> Iterator[None]:
    """Rows that are batches are large: Spark's number of rows for a Python worker would be gigabytes."""
    before = spark.conf.get(ARROW_ROWS)
    spark.conf.set(ARROW_ROWS, str(BATCHES_AT_ONCE))
    try:
        yield
    finally:
        spark.conf.set(ARROW_ROWS, before or "")


def _slots(spark: SparkSession) -> int:
    """Tasks that run at once: each start of a Python worker costs, and more of them write no faster."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkAttributeError:
        # Spark Connect tells only by what it does.
        return spark.range(1 << 12).select(F.spark_partition_id()).distinct().count()


def _owner(spark: SparkSession, tasks: int) -> Column:
    """A column that sends partition p to task p modulo `tasks`; the hash of p alone would leave some tasks without any."""
    if tasks not in _salts:
        candidates = max(64, 32 * tasks)
        found = spark.sql(f"SELECT transform(sequence(0, {candidates}), x -> pmod(hash(x), {tasks})) AS slots").first()
        assert found is not None
        _salts[tasks] = [found.slots.index(slot) for slot in range(tasks)]
    return F.element_at(F.array(*map(F.lit, _salts[tasks])), F.col("partition") % tasks + 1)


def _property(target: Target, name: str) -> str:
    return target.kafka.properties.get(name, DEFAULTS[name])


def _limits(target: Target) -> _Limits:
    """Ask the brokers what they allow; where that may not be asked, Kafka's defaults count."""
    batch_bytes, timeout = int(_property(target, "batch.size")), int(_property(target, "transaction.timeout.ms"))
    with target.kafka.admin() as admin:
        try:
            largest = int(topics.config(admin, target.topic)["max.message.bytes"])
            batch_bytes = min(batch_bytes, largest - HEADER_BYTES - MOST_OVERHEAD)
            longest = int(topics.broker_config(admin)["transaction.max.timeout.ms"])
        except (KafkaError, KeyError) as error:
            # A topic that may not be described has no settings in the answer.
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
