"""One micro-batch: its messages, delivery and state record. Spark calls `Batches` for each.

A batch is computed completely and once, also if it was written before: otherwise Spark's state stores would lose it. Leaves to
`rows` which messages it has, and to `sinks` how they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient
from pyspark.sql import DataFrame

from dbt.adapters.upsert_kafka.dbt_warnings import warn_about
from dbt.adapters.upsert_kafka.errors import GuardError, StateError
from dbt.adapters.upsert_kafka.formats.records import Records
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.publish import deliver, guards
from dbt.adapters.upsert_kafka.publish.memory import Memory
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.sinks import Delivery, StateWrite, TransactionPlan
from dbt.adapters.upsert_kafka.spark.checkpoint import release_checkpoints
from dbt.adapters.upsert_kafka.state import lease
from dbt.adapters.upsert_kafka.state.record import SourceOffsets, StateRecord, Stream
from dbt.adapters.upsert_kafka.streaming import rows
from dbt.adapters.upsert_kafka.streaming.checkpoints import Checkpoint
from dbt.adapters.upsert_kafka.streaming.plan import StreamPlan
from dbt.adapters.upsert_kafka.streaming.rows import NOT_WRITTEN, BatchRecords, Counts

if TYPE_CHECKING:
    from dbt.adapters.upsert_kafka.sinks.driver import DriverSink

logger = AdapterLogger("upsert_kafka")


class StreamEndedError(Exception):
    """The stream was asked to end. The batch was not begun; the next start computes it."""


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
    is_ending: bool = False
    """Set by another thread: the next batch does not begin."""
    error: Exception | None = None
    """What failed, if a batch did. Spark would report it as text with a stack trace."""
    topic_ids: Callable[[Iterable[str]], Mapping[str, str]] = lambda _: {}
    """Asks for the ids of source topics."""
    sink: DriverSink | None = None
    """For batches that this process writes; None if Spark writes all."""

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
        after = replace(self.stream, batch=batch, offsets=offsets, topics=self._source_ids(offsets))
        self._check_topic()
        found = self._records(frame)
        found.counts.bytes = self.write(found, after)
        self._add(found.counts)

    def _source_ids(self, offsets: SourceOffsets) -> Mapping[str, str]:
        """The ids of the source topics, also of those that a pattern has found since: another topic of the name is refused."""
        known = self.stream.topics
        added = offsets.keys() - known.keys()
        return {**known, **self.topic_ids(added)} if added else known

    def write(self, found: BatchRecords, after: Stream) -> int:
        """Deliver messages and the state record with `after`.

        Returns:
            The compressed size, if the sink knows it.
        """
        size = 0
        if found.number:
            size = self._deliver(found, after).bytes or 0
        else:
            self._put(after, self.check_record)
        self.stream = after
        return size

    def write_first(self, before: StateRecord | None) -> None:
        """Write the state record with which the stream begins.

        Args:
            before: the record from which it was decided where the stream begins.

        Raises:
            StateError: another run has written a record since.
        """

        def check() -> None:
            newest = self.memory.store.get(self.admin, self.request.topic)
            if (newest and newest.encode()) != (before and before.encode()):
                raise self._another(newest)

        self._put(self.stream, check)

    def _put(self, stream: Stream, check: Callable[[], None]) -> None:
        """Write the state record without messages. Under exactly-once an older process can't write it late, after a newer one."""
        store, record = self.memory.store, self.memory.of_stream(self.topic, self.layout, stream)
        if self.sink is not None and self.request.transactional_id:
            state = StateWrite(store.topic, lambda _: (record.topic.encode(), record.encode()), is_alone=True)
            deliver.write_state(self.sink, self.topic, self.admin, self.request, TransactionPlan(check, state))
        else:
            check()
            store.put(record)

    def check_record(self) -> None:
        """Refuse to write if another process has published since: its batches and these would be mixed.

        Raises:
            StateError: names the other run.
        """
        record = self.memory.store.get(self.admin, self.request.topic)
        found = record.stream if record is not None else None
        is_same = found is not None and (found.query, found.batch) == (self.stream.query, self.stream.batch)
        if record is None or not is_same or lease.holder(found) is not None:
            raise self._another(record)

    def _another(self, record: StateRecord | None) -> StateError:
        run = f" ({record.run})" if record is not None else ""
        return StateError(
            f"model {self.request.model}: another run has published to topic '{self.request.topic}' since this stream "
            f"began{run}. {NOT_WRITTEN}"
        )

    def _check_topic(self) -> None:
        if topics.is_another(self.admin, self.topic):
            remedy = "Start it again." if self.request.options.appends else "Run it once with --full-refresh."
            raise GuardError(
                f"model {self.request.model}: topic '{self.topic.name}' was deleted, created again or got partitions while the "
                f"stream ran. {NOT_WRITTEN} {remedy}"
            )

    def _records(self, frame: DataFrame) -> BatchRecords:
        """The messages of the batch, computed and checked."""
        request = self.request
        if not request.options.appends:
            found = rows.last_per_key(frame, self.plan, request)
        else:
            found = rows.events(frame, request)
            warning = guards.appended_tombstones(found.tombstones, request.topic, self.topic.cleanup_policy, self.layout)
            warn_about(request.model, [warning] if warning else [])
            found = self._placed(found)
        deliver.check_size(self.admin, self.topic, found.largest, request)
        return found

    def _placed(self, found: BatchRecords) -> BatchRecords:
        partitioner = deliver.partitioner_of(self.request)
        if partitioner.is_default:
            return found
        return replace(found, records=deliver.place(found.records, partitioner, self.topic), collected=None)

    def _deliver(self, found: BatchRecords, after: Stream) -> Delivery:
        """Write messages and, except by Spark's sink, the state record."""
        request, admin, is_transaction = self.request, self.admin, bool(self.request.transactional_id)
        if not is_transaction:
            self.check_record()
        state = self.memory.of_stream(self.topic, self.layout, after)

        def message(_: Delivery) -> tuple[bytes, bytes]:
            if not is_transaction:
                self.check_record()
            return state.topic.encode(), state.encode()

        # The check comes when the transaction is open: whoever wrote before has committed or was aborted.
        plan = TransactionPlan(self.check_record, StateWrite(self.memory.store.topic, message))
        if self.sink is not None and found.is_small:
            return deliver.deliver_rows(self.sink, found.rows(), self.topic, admin, request, plan)
        delivery = deliver.deliver(found.records, found.number, self.topic, admin, request, plan)
        if not is_transaction:
            message(delivery)
            self.memory.store.put(state)
        return delivery

    def close(self) -> None:
        """Close the connections that batches use."""
        if self.sink is not None:
            self.sink.close()

    def _add(self, counts: Counts) -> None:
        total = self.counts
        total.batches += counts.batches
        total.written += counts.written
        total.deleted += counts.deleted
        total.dropped += counts.dropped
        total.bytes += counts.bytes
