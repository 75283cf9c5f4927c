"""Writes record batches to partitions of one topic, in a transaction or outside of transactions.

When `Writer.flush` returns, every batch is in its partition once and in order, whatever leader changes and restarts happened;
otherwise it raises Kafka's error. Opening and ending the transaction is left to `protocol`. The module also runs in Spark's
Python workers, see there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kafka import TopicPartition, errors

from dbt.adapters.upsert_kafka.kafka_client.internals import Future, ProduceRequest
from dbt.adapters.upsert_kafka.sinks.protocol import LONGEST_PAUSE, Client, Retry, check, is_retriable
from dbt.adapters.upsert_kafka.sinks.record_batch import Producer

ALL_REPLICAS = -1
MAX_IN_FLIGHT = 5
"""Unacknowledged batches of a partition. A broker recognises a repeated batch only among a producer's last five."""
MAX_SEQUENCE = (1 << 31) - 1


@dataclass
class Batch:
    """One record batch that is being written. The sequence number in its payload lets the broker recognise a repetition."""

    records: int
    payload: bytes
    answer: Future | None = None
    error: BaseException | None = None
    offset: int | None = None


@dataclass
class PartitionState:
    """What was written to one partition, and its batches that are not acknowledged yet, in order."""

    partition: int
    retry: Retry
    next_sequence: int = 0
    first_batch_written: bool = False
    records: int = 0
    bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    in_flight: deque[Batch] = field(default_factory=deque)


class Writer:
    """Writes batches of one transaction to partitions of a topic. No other writer of the transaction may write to them."""

    def __init__(self, client: Client, producer: Producer, topic: str) -> None:
        self._client = client
        self._producer = producer
        self._topic = topic
        self._partitions: dict[int, PartitionState] = {}

    @property
    def partitions(self) -> list[PartitionState]:
        return list(self._partitions.values())

    def add_partitions(self, partitions: list[int]) -> None:
        """Add partitions to the transaction, except those that are in it. Needed before the first batch for a partition."""
        new = [partition for partition in partitions if partition not in self._partitions]
        if new:
            if self._producer.transactional_id:
                self._client.add_partitions(self._producer, self._topic, new)
            self._partitions.update({partition: PartitionState(partition, Retry(self._client)) for partition in new})

    def next_sequence(self, partition: int) -> int:
        return self._partitions[partition].next_sequence

    def write(self, partition: int, records: int, payload: bytes) -> None:
        """Send a batch. Waits only if too many batches of its partition are in flight."""
        state = self._partitions[partition]
        # A broker accepts any sequence number from a producer that is new to the partition. If a later batch overtook the
        # first one, the first would be refused.
        while len(state.in_flight) >= (MAX_IN_FLIGHT if state.first_batch_written else 1):
            self._complete_oldest(state)
        batch = Batch(records, payload)
        state.next_sequence = (state.next_sequence + records) % (MAX_SEQUENCE + 1)
        state.records += records
        state.bytes += len(payload)
        state.in_flight.append(batch)
        self._send(state, batch)
        self._client.net.poll(timeout_ms=0)

    def flush(self) -> None:
        """Wait until all batches are acknowledged."""
        for state in self._partitions.values():
            while state.in_flight:
                self._complete_oldest(state)

    def _complete_oldest(self, state: PartitionState) -> None:
        """Wait for the oldest batch. After a retriable error, send it and the failed batches after it again, in order."""
        self._receive(state.in_flight[0])
        if (error := state.in_flight[0].error) is None:
            self._acknowledge(state, state.in_flight.popleft())
            return
        # The batches after it were refused because of the gap, or accepted because only the answer to the oldest was lost.
        for batch in state.in_flight:
            self._receive(batch)
        state.retry.after(self._refresh() or error if is_retriable(error) else error)
        for batch in state.in_flight:
            if batch.error is not None:
                self._send(state, batch)

    def _acknowledge(self, state: PartitionState, batch: Batch) -> None:
        state.retry, state.first_batch_written = Retry(self._client), True
        if batch.offset is not None:
            state.last_offset = batch.offset + batch.records - 1
            state.first_offset = batch.offset if state.first_offset is None else state.first_offset

    def _send(self, state: PartitionState, batch: Batch) -> None:
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=self._producer.transactional_id or None,
            acks=ALL_REPLICAS,
            timeout_ms=self._client.manager.config["request_timeout_ms"],
            topic_data=[
                data(name=self._topic, partition_data=[data.PartitionProduceData(index=state.partition, records=batch.payload)])
            ],
            max_version=8,
        )
        leader = self._client.manager.cluster.leader_for_partition(TopicPartition(self._topic, state.partition))
        batch.error = None
        if leader is None or leader == -1:
            batch.answer = Future().failure(errors.LeaderNotAvailableError(self._topic))
            return
        try:
            batch.answer = self._client.manager.send(request, node_id=leader)
        except errors.KafkaError as error:
            batch.answer = Future().failure(error)

    def _receive(self, batch: Batch) -> None:
        assert batch.answer is not None
        self._client.net.poll(future=batch.answer)
        if batch.answer.failed():
            batch.error = batch.answer.exception
            return
        [topic] = batch.answer.value.responses
        [answer] = topic.partition_responses
        try:
            check(answer.error_code, getattr(answer, "error_message", None))
            batch.offset = answer.base_offset
        except errors.DuplicateSequenceNumberError:
            # An earlier attempt wrote it, and the broker no longer knows the offset.
            batch.offset = None
        except errors.KafkaError as error:
            batch.error = error

    def _refresh(self) -> errors.KafkaError | None:
        """Update the leaders. Returns the error if the topic is unknown."""
        update = self._client.manager.cluster.request_update()
        self._client.net.poll(timeout_ms=LONGEST_PAUSE * 1000, future=update)
        return update.exception if update.failed() and isinstance(update.exception, errors.UnknownTopicOrPartitionError) else None
