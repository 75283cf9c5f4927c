"""One micro-batch: last row per key, checks, delivery, state record. Spark calls `Batches` for each.

A batch is computed completely and once, also if it was written before: otherwise Spark's state stores would lose it. Leaves to
`sinks` how records are written.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.errors import GuardError, StateError, count_of
from dbt.adapters.upsert_kafka.formats.records import IS_DELETED, KEY, NULL_KEY, PARTITION, SEQUENCE, VALUE, Records, extras, size
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.publish import deliver, guards
from dbt.adapters.upsert_kafka.publish.memory import Memory
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.sinks import Delivery, StateWrite, TransactionPlan
from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint, release_checkpoints
from dbt.adapters.upsert_kafka.spark.metrics import ObservedMetrics
from dbt.adapters.upsert_kafka.sql import quote_identifier
from dbt.adapters.upsert_kafka.state import lease
from dbt.adapters.upsert_kafka.state.record import Lease, Stream
from dbt.adapters.upsert_kafka.streaming.checkpoints import Checkpoint
from dbt.adapters.upsert_kafka.streaming.plan import StreamPlan

logger = AdapterLogger("upsert_kafka")

PEERS = "peers"
NULL_COLUMN = "null_column_{}"
NOT_WRITTEN = "Nothing of this batch was written; the next run repeats it."


class StreamEndedError(Exception):
    """The stream was asked to end. The batch was not begun; the next start computes it."""


@dataclass
class Counts:
    """What the batches of a stream have done since it was started."""

    batches: int = 0
    written: int = 0
    """Messages with a value."""
    deleted: int = 0
    """Tombstones."""
    dropped: int = 0
    """Rows without a key."""
    repeated: int = 0
    """Batches that were in the topic already, and were computed again only for Spark's state."""
    bytes: int = 0


def encode(plan: StreamPlan, layout: Records, request: Request) -> DataFrame:
    """The columns that a batch needs, encoded inside the streaming plan."""
    more: dict[str, Column] = {
        NULL_COLUMN.format(i): F.col(quote_identifier(name)).isNull() for i, name in enumerate(request.not_null)
    }
    if plan.order is not None:
        more[SEQUENCE] = plan.order
    return layout.encode(plan.rows, request.options, more)


@dataclass
class Batches:
    """Writes the batches of one query, in the thread in which Spark calls it."""

    request: Request
    topic: Topic
    admin: KafkaAdminClient
    memory: Memory
    layout: Records
    plan: StreamPlan
    checkpoint: Checkpoint
    stream: Stream
    """As the state record has it."""
    counts: Counts = field(default_factory=Counts)
    is_continuous: bool = False
    """Whether the process holds a lease, which each state record renews."""
    is_ending: bool = False
    """Set by another thread: the next batch does not begin."""
    error: Exception | None = None
    """What failed, if a batch did. Spark would report it as text with a stack trace."""
    _closing: threading.Lock = field(default_factory=threading.Lock)
    """Held while a state record is written or committed: an older record must not come after a newer one."""

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self.is_ending:
            raise StreamEndedError
        try:
            with release_checkpoints():
                self._process(frame, batch)
        except Exception as error:
            self.error = error
            raise

    def _process(self, frame: DataFrame, batch: int) -> None:
        offsets = self.checkpoint.offsets(batch)
        if batch == self.stream.batch and offsets == self.stream.offsets:
            logger.debug(f"model {self.request.model}: batch {batch} is in the topic already")
            frame.write.format("noop").mode("overwrite").save()
            self.counts.repeated += 1
            return
        if batch != self.stream.batch + 1:
            raise StateError(
                f"model {self.request.model}: Spark computes batch {batch}, and the last batch in the topic is "
                f"{self.stream.batch}. {NOT_WRITTEN} Another process uses the checkpoint"
            )
        after = replace(self.stream, batch=batch, offsets=offsets)
        self._check_topic()
        records, counts = self._records(frame)
        counts.bytes = self.write(records, counts.written + counts.deleted, after)
        self._add(counts)

    def write(self, records: DataFrame, number: int, after: Stream) -> int:
        """Deliver records and the state record with `after`.

        Args:
            number: of records.

        Returns:
            The compressed size, if the sink knows it.
        """
        after = replace(after, lease=lease.own() if self.is_continuous else None)
        delivery = self._deliver(records, number, after) if number else None
        if delivery is None or not self.request.transactional_id:
            with self._closing:
                self.check_record()
                self.memory.store.put(self.memory.of_stream(self.topic, self.layout, after))
        self.stream = after
        return (delivery.bytes if delivery else None) or 0

    def renew_lease(self, admin: KafkaAdminClient) -> None:
        """Write the state record again with a lease that begins now. Another thread than that of the batches calls it.

        Args:
            admin: of the calling thread.
        """
        self._put_lease(admin, lease.own())

    def release_lease(self, admin: KafkaAdminClient) -> None:
        """Let others publish to the topic: the stream has ended."""
        self._put_lease(admin, None)

    def _put_lease(self, admin: KafkaAdminClient, value: Lease | None) -> None:
        with self._closing:
            record = self.memory.store.get(admin, self.request.topic, waits=False)
            found = record.stream if record is not None else None
            if record is None or found is None or (found.query, found.batch) != (self.stream.query, self.stream.batch):
                return  # Another run has taken over: the next batch is refused.
            if lease.holder(found) is None and found.lease != value:
                self.memory.store.put(replace(record, stream=replace(found, lease=value)))

    def check_record(self) -> None:
        """Refuse to write if another process has published since: its batches and these would be mixed.

        Raises:
            StateError: names the other run.
        """
        record = self.memory.store.get(self.admin, self.request.topic)
        found = record.stream if record is not None else None
        is_same = found is not None and (found.query, found.batch) == (self.stream.query, self.stream.batch)
        if record is None or not is_same or lease.holder(found) is not None:
            run = f" ({record.run})" if record is not None else ""
            raise StateError(
                f"model {self.request.model}: another run has published to topic '{self.request.topic}' since this stream "
                f"began{run}. {NOT_WRITTEN}"
            )

    def _check_topic(self) -> None:
        if topics.is_another(self.admin, self.topic):
            raise GuardError(
                f"model {self.request.model}: topic '{self.topic.name}' was deleted, created again or got partitions while the "
                f"stream ran. {NOT_WRITTEN} Run it once with --full-refresh."
            )

    def _records(self, frame: DataFrame) -> tuple[DataFrame, Counts]:
        """The messages of the batch, computed and checked."""
        rows, kept = ObservedMetrics(), ObservedMetrics()
        options = self.request.options
        nulls = [F.count_if(NULL_COLUMN.format(i)).alias(f"c{i}") for i in range(len(self.request.not_null))]
        observed = rows.observe(frame, F.count_if(NULL_KEY).alias("nulls"), *nulls)
        keyed = observed.where(~F.col(NULL_KEY))
        is_deleted = F.col(IS_DELETED)
        last = kept.observe(
            keyed if self.plan.is_unique else _last_rows(keyed),
            F.count_if(~is_deleted).alias("written"),
            F.count_if(is_deleted).alias("deleted"),
            F.count_if(~is_deleted & F.col(VALUE).isNull()).alias("null_values"),
            F.max(size()).alias("largest"),
            (F.lit(0) if self.plan.is_unique else F.count_if(F.col(PEERS) > 1)).alias("duplicates"),
        )
        if options.sink_ignore_retraction:
            last = last.where(~is_deleted)
        value = F.when(~is_deleted, F.col(VALUE)).alias(VALUE)
        records = checkpoint(last.select(KEY, value, F.lit(None).cast("int").alias(PARTITION), *extras(last)))
        found, before = kept.values, rows.values
        self._check(before, found)
        deliver.check_size(self.admin, self.topic, found["largest"] or 0, self.request)
        deleted = 0 if options.sink_ignore_retraction else found["deleted"]
        return records, Counts(1, found["written"], deleted, before["nulls"])

    def _check(self, rows: dict[str, int], kept: dict[str, int]) -> None:
        """The guards of a batch run that apply to a batch of a stream."""
        key = ", ".join(self.request.options.unique_key)
        reasons = [
            f"{count_of(rows[f'c{i}'], 'row', 'has', 'have')} NULL in '{name}', which has a not_null constraint"
            for i, name in enumerate(self.request.not_null)
            if rows[f"c{i}"]
        ]
        if rows["nulls"] and self.request.options.on_null_key != "drop":
            reasons.append(f"{guards.null_keys(rows['nulls'], key)}. Filter such rows in the SELECT, or set on_null_key='drop'")
        if kept["duplicates"]:
            what = "the last of their key" if self.plan.order is not None or self.request.options.sequence_by else "of one key"
            reasons.append(
                f"{kept['duplicates']} rows of a batch are equally {what} ({key}). Make the SELECT return one row for each key "
                "and event, or add a column to sequence_by that differs between them"
            )
        if kept["null_values"]:
            reasons.append(
                f"{count_of(kept['null_values'], 'row', 'has', 'have')} NULL as the value of the message, which would delete the "
                "key. Filter such rows in the SELECT; set delete_when if the keys are to be deleted"
            )
        if reasons:
            lines = "\n".join(f"model {self.request.model}: {reason}." for reason in reasons)
            raise GuardError(f"{lines} {NOT_WRITTEN}")

    def _deliver(self, records: DataFrame, number: int, after: Stream) -> Delivery:
        if not self.request.transactional_id:
            self.check_record()
        state = self.memory.of_stream(self.topic, self.layout, after)
        with self._closed_once() as close:

            def message(_: Delivery) -> tuple[bytes, bytes]:
                close()
                return state.topic.encode(), state.encode()

            # The check comes when the transaction is open: whoever wrote before has committed or was aborted.
            plan = TransactionPlan(self.check_record, StateWrite(self.memory.store.topic, message))
            return deliver.deliver(records, number, self.topic, self.admin, self.request, plan)

    @contextmanager
    def _closed_once(self) -> Iterator[Callable[[], None]]:
        """A function that takes the lock `_closing`, which is released at the end of the block. It may be called again."""
        is_closed = False

        def close() -> None:
            nonlocal is_closed
            if not is_closed:
                self._closing.acquire()
                is_closed = True

        try:
            yield close
        finally:
            if is_closed:
                self._closing.release()

    def _add(self, counts: Counts) -> None:
        total = self.counts
        total.batches += counts.batches
        total.written += counts.written
        total.deleted += counts.deleted
        total.dropped += counts.dropped
        total.bytes += counts.bytes


def _last_rows(rows: DataFrame) -> DataFrame:
    """The last row of each key, and in the column `peers` how many rows are equally the last."""
    by_key = Window.partitionBy(KEY)
    if SEQUENCE not in rows.columns:
        return rows.withColumn(PEERS, F.count("*").over(by_key))
    ordered = by_key.orderBy(F.col(SEQUENCE).desc())
    same = ordered.rangeBetween(Window.currentRow, Window.currentRow)
    return rows.withColumns({PEERS: F.count("*").over(same), "place": F.rank().over(ordered)}).where("place = 1")
