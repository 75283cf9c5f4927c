"""The producer's side of Kafka's transaction protocol, spoken through kafka-python's connections.

Promises that a batch is in its partition once and in order when `flush` returns, through leader changes and restarts, or raises
Kafka's error. Asks for no API version newer than Kafka 2.5. Runs in Spark's Python workers too, where this package may not be
installed: it imports nothing of its neighbours but what is shipped with it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from kafka import TopicPartition, errors
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)

from dbt.adapters.upsert_kafka.sinks.record_batch import Identity

TRANSACTION, ALL_REPLICAS = 1, -1
IN_FLIGHT = 5
"""Batches of a partition on their way at once: what a broker remembers of a producer to tell repetitions from gaps."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
BOOTSTRAP_SECONDS = 30.0
GONE_AFTER = 15.0
"""Seconds for which a topic may be unknown: new leaders take a moment, deleted topics stay away."""


class Client:
    """Connections to one cluster, driven by the thread that calls.

    Args:
        arguments: kafka-python's client arguments.
        patience: seconds after which a request that keeps failing for a passing reason has failed.
        topic: that will be written to; its leaders are asked for with the first question.
    """

    def __init__(self, arguments: Mapping[str, Any], patience: float, topic: str | None = None) -> None:
        # In a worker, too, what goes wrong is told once, by the error.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        # The number of requests on their way is limited by partition, not by connection.
        settings = {**arguments, "max_in_flight_requests_per_connection": 1000}
        self.patience = patience
        self.net = NetworkSelector(**settings)
        self.manager = KafkaConnectionManager(self.net, **settings)
        self.manager.cluster.config["allow_auto_create_topics"] = False
        if topic is not None:
            self.manager.cluster.add_topic(topic)
        self._coordinators: dict[str, Any] = {}
        try:
            self.manager.bootstrap(timeout_ms=min(patience, BOOTSTRAP_SECONDS) * 1000)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        # kafka-python fails at a socket that is waited for both ways when it is closed; closed it is all the same.
        with suppress(OSError):
            self.manager.close()
        with suppress(OSError):
            self.net.close()

    def open(self, transactional_id: str, timeout_ms: int, mine: Identity | None = None) -> Identity:
        """A new epoch for the id: whoever had it before is fenced, and what was left open is aborted first.

        Args:
            mine: open only if this is still the id's latest epoch, so that nobody else is fenced.
        """
        owner = {"producer_id": mine.producer_id, "producer_epoch": mine.epoch} if mine else {}
        answer = self._coordinate(
            transactional_id,
            lambda: InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, max_version=3, **owner
            ),
            lambda answer: answer.error_code,
        )
        return Identity(transactional_id, answer.producer_id, answer.producer_epoch)

    def add_partitions(self, identity: Identity, topic: str, partitions: list[int]) -> None:
        """Make partitions part of the transaction; the first of them starts it."""

        def code(answer: Any) -> int:
            codes = [p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition]
            # When one partition is refused the others are answered with "not attempted".
            return next((c for c in codes if c not in (0, errors.OperationNotAttemptedError.errno)), max(codes))

        self._coordinate(
            identity.transactional_id,
            lambda: AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=identity.transactional_id,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=partitions)],
                max_version=1,
            ),
            code,
        )

    def commit(self, identity: Identity) -> None:
        """The one decision. Asked again after a lost answer, which changes nothing that was decided."""
        self._coordinate(
            identity.transactional_id,
            lambda: EndTxnRequest(
                transactional_id=identity.transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=True,
                max_version=1,
            ),
            lambda answer: answer.error_code,
        )

    def pause(self, seconds: float) -> None:
        """Wait while connections go on working."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.net.poll(timeout_ms=left * 1000)

    def _coordinate(self, transactional_id: str, request: Callable[[], Any], code: Callable[[Any], int]) -> Any:
        """Ask the coordinator of an id until it answers; a passing error is asked again."""
        retry = Retry(self)
        while True:
            try:
                if transactional_id not in self._coordinators:
                    self._coordinators[transactional_id] = self._find_coordinator(transactional_id)
                answer = self._ask(request(), self._coordinators[transactional_id])
                check(code(answer))
                return answer
            except errors.KafkaError as error:
                if not isinstance(error, errors.ConcurrentTransactionsError):
                    self._coordinators.pop(transactional_id, None)
                retry.after(error)

    def _find_coordinator(self, transactional_id: str) -> Any:
        node = self.manager.least_loaded_node()
        answer = self._ask(FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION, max_version=2), node)
        check(answer.error_code)
        return self.manager.cluster.add_coordinator(answer, TRANSACTION, transactional_id)

    def _ask(self, request: Any, node: Any) -> Any:
        answer = self.manager.send(request, node_id=node)
        self.net.poll(future=answer)
        if answer.failed():
            raise answer.exception
        return answer.value


class Retry:
    """How long to go on after errors: longer pauses each time, and an end."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pause = FIRST_PAUSE
        self._started: float | None = None

    def after(self, error: BaseException) -> None:
        """Wait before the next try, or raise the error if it will not pass or has lasted too long."""
        if not is_passing(error):
            raise error
        now = time.monotonic()
        self._started = self._started or now
        lasting = GONE_AFTER if isinstance(error, errors.UnknownTopicOrPartitionError) else self._client.patience
        if now - self._started > lasting:
            raise error
        self._client.pause(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


def is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    return isinstance(error, errors.UnknownBrokerIdError) or (isinstance(error, errors.KafkaError) and error.retriable)


def check(code: int, detail: str | None = None) -> None:
    """Raise Kafka's error for an error code."""
    if code:
        raise errors.for_code(code)(detail)


@dataclass
class Batch:
    """One record batch on its way; the broker knows it by its sequence number."""

    sequence: int
    records: int
    payload: bytes
    answer: Future | None = None
    error: BaseException | None = None
    offset: int | None = None


@dataclass
class Lane:
    """One partition of the topic: its batches leave in order and are answered in order."""

    partition: int
    retry: Retry
    next_sequence: int = 0
    has_begun: bool = False
    """Whether the partition has the first batch."""
    records: int = 0
    size: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    unanswered: deque[Batch] = field(default_factory=deque)


class Writer:
    """Writes batches to the partitions of one topic that this writer alone owns, several at a time."""

    def __init__(self, client: Client, identity: Identity, topic: str) -> None:
        self._client = client
        self._identity = identity
        self._topic = topic
        self._lanes: dict[int, Lane] = {}

    @property
    def lanes(self) -> list[Lane]:
        return list(self._lanes.values())

    def own(self, partitions: list[int]) -> None:
        """Make partitions part of the transaction before the first batch of them is written."""
        new = [partition for partition in partitions if partition not in self._lanes]
        if new:
            self._client.add_partitions(self._identity, self._topic, new)
            self._lanes.update({partition: Lane(partition, Retry(self._client)) for partition in new})

    def next_sequence(self, partition: int) -> int:
        return self._lanes[partition].next_sequence

    def write(self, partition: int, records: int, payload: bytes) -> None:
        """Send a batch; waits only while too many of its partition are on their way."""
        lane = self._lanes[partition]
        # A broker takes whatever comes first of a producer for its beginning: nothing may overtake the first batch.
        while len(lane.unanswered) >= (IN_FLIGHT if lane.has_begun else 1):
            self._settle(lane)
        batch = Batch(lane.next_sequence, records, payload)
        # Sequence numbers start again at zero after the largest.
        lane.next_sequence = (lane.next_sequence + records) % (1 << 31)
        lane.records += records
        lane.size += len(payload)
        lane.unanswered.append(batch)
        self._send(lane, batch)
        self._client.net.poll(timeout_ms=0)

    def flush(self) -> None:
        """Wait until all batches are in their partitions."""
        for lane in self._lanes.values():
            while lane.unanswered:
                self._settle(lane)

    def _settle(self, lane: Lane) -> None:
        """Wait for the answer to the oldest batch; after a passing error send it and its followers again, in order."""
        self._receive(lane.unanswered[0])
        if (error := lane.unanswered[0].error) is None:
            self._done(lane, lane.unanswered.popleft())
            return
        # The followers were refused for the gap before them, or accepted because only the oldest's answer is missing.
        for batch in lane.unanswered:
            self._receive(batch)
        lane.retry.after(self._refresh() or error if is_passing(error) else error)
        for batch in lane.unanswered:
            if batch.error is not None:
                self._send(lane, batch)

    def _done(self, lane: Lane, batch: Batch) -> None:
        lane.retry, lane.has_begun = Retry(self._client), True
        if batch.offset is not None:
            lane.last_offset = batch.offset + batch.records - 1
            lane.first_offset = batch.offset if lane.first_offset is None else lane.first_offset

    def _send(self, lane: Lane, batch: Batch) -> None:
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=self._identity.transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=self._client.manager.config["request_timeout_ms"],
            topic_data=[
                data(name=self._topic, partition_data=[data.PartitionProduceData(index=lane.partition, records=batch.payload)])
            ],
            max_version=8,
        )
        leader = self._client.manager.cluster.leader_for_partition(TopicPartition(self._topic, lane.partition))
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
            # It was written by an earlier try, longer ago than the broker remembers the offset.
            batch.offset = None
        except errors.KafkaError as error:
            batch.error = error

    def _refresh(self) -> errors.KafkaError | None:
        """Learn the leaders anew; the topic's error where it has one."""
        update = self._client.manager.cluster.request_update()
        self._client.net.poll(timeout_ms=LONGEST_PAUSE * 1000, future=update)
        return update.exception if update.failed() and isinstance(update.exception, errors.UnknownTopicOrPartitionError) else None
