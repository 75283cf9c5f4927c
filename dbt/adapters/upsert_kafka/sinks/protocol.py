"""The producer's side of Kafka's transaction protocol, on top of kafka-python's connections.

`Client` opens, commits and aborts transactions; `writer.Writer` writes record batches in one. No request needs a broker newer
than Kafka 2.5. The module also runs in Spark's Python workers, where this package may not be installed: it imports only modules
that are shipped with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from kafka import errors

from dbt.adapters.upsert_kafka.kafka_client.internals import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    close_connections,
    open_connections,
)
from dbt.adapters.upsert_kafka.sinks.record_batch import Producer

GROUP, TRANSACTION = 0, 1
TRANSACTION_VERSION, EPOCH_PER_TRANSACTION = "transaction.version", 2
"""A feature of the cluster, and its level at which EndTxn answers with the next epoch (KIP-890)."""
FEATURES_SINCE = 3
"""The version of ApiVersions that has them: Kafka 2.4."""
NEXT_EPOCH_SINCE = 5
"""The version of EndTxn that has it."""
NO_TIMEOUT = (1 << 31) - 1
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
BOOTSTRAP_SECONDS = 30.0
UNKNOWN_TOPIC_SECONDS = 15.0
"""How long "unknown topic or partition" is retried. It is also the answer while a leader is elected, but then not for long."""
Raised = tuple[type[errors.KafkaError], ...]
"""Retriable errors that are raised instead."""


class Network:
    """Real connections and the real time."""

    def connect(self, arguments: Mapping[str, Any]) -> tuple[Any, Any]:
        """The event loop and the connections of one client."""
        return open_connections(arguments)

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()


class Client:
    """Connections to one cluster. They make progress only while a method is running, in the caller's thread.

    Args:
        arguments: kafka-python's client arguments.
        timeout: seconds for which a request is repeated after retriable errors.
        topic: the topic to write to, or several, so that the first metadata request already asks for their leaders.
        network: opens the connections and tells the time; tests simulate both.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any],
        timeout: float,
        topic: str | Sequence[str] | None = None,
        network: Network | None = None,
    ) -> None:
        # Errors are raised. kafka-python would also log each of them, into the worker's stderr.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        # `Writer` limits the requests in flight by partition, so they are not limited by connection.
        settings = {**arguments, "max_in_flight_requests_per_connection": 1000}
        self.timeout = timeout
        network = network or Network()
        self.now = network.now
        self.net, self.manager = network.connect(settings)
        self.manager.cluster.config["allow_auto_create_topics"] = False
        for name in (topic,) if isinstance(topic, str) else topic or ():
            self.manager.cluster.add_topic(name)
        self._coordinators: dict[tuple[int, str], Any] = {}
        try:
            self.manager.bootstrap(timeout_ms=min(timeout, BOOTSTRAP_SECONDS) * 1000)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        close_connections(self.manager, self.net)

    def open(self, transactional_id: str, timeout_ms: int) -> Producer:
        """Get a new epoch for the transactional id. This aborts its open transaction and fences every older epoch.

        Args:
            timeout_ms: of the transaction; the broker aborts it afterwards.
        """
        return self._init_producer_id(transactional_id, timeout_ms)

    def open_without_transactions(self) -> Producer:
        """Get a producer id for writes outside of transactions. With it, brokers recognise a batch that is sent again."""
        retry = Retry(self)
        while True:
            try:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TIMEOUT, max_version=3)
                answer = self._request(request, self.manager.least_loaded_node())
                check(answer.error_code)
                return Producer("", answer.producer_id, answer.producer_epoch)
            except errors.KafkaError as error:
                retry.after(error)

    def add_partitions(self, producer: Producer, topic: str, partitions: list[int]) -> None:
        """Add partitions to the transaction. The first ones start it."""
        self._add_partitions(producer, topic, partitions)

    def _add_partitions(self, producer: Producer, topic: str, partitions: list[int], raises: Raised = ()) -> None:
        def code(answer: Any) -> int:
            codes = [p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition]
            # If one partition is refused, the answer for the others is "operation not attempted".
            return next((c for c in codes if c not in (0, errors.OperationNotAttemptedError.errno)), max(codes))

        self.ask_coordinator(
            producer.transactional_id,
            lambda: AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=producer.transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=partitions)],
                max_version=1,
            ),
            code,
            raises,
        )

    def add_group(self, producer: Producer, group: str) -> None:
        """Add the offsets of a consumer group to the transaction."""
        self.ask_coordinator(
            producer.transactional_id,
            lambda: AddOffsetsToTxnRequest(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                group_id=group,
                max_version=1,
            ),
            lambda answer: answer.error_code,
        )

    def commit(self, producer: Producer) -> None:
        """Commit the transaction. The request may be repeated after a lost answer: it has no further effect."""
        self._end(producer, committed=True)

    def abort(
        self, producer: Producer, timeout_ms: int, partitions: Mapping[str, list[int]], groups: Iterable[str] = ()
    ) -> Producer:
        """Abort the producer's transaction, if one is open, and get the next epoch, which fences tasks that still write.

        Args:
            timeout_ms: of the next transaction.
            partitions: to which tasks of this transaction may still write, by topic.
            groups: whose offsets the transaction may contain: a late TxnOffsetCommit is a late batch too.

        Raises:
            ProducerFencedError, InvalidProducerEpochError, InvalidProducerIdMappingError: the producer was fenced.
        """
        if self._transaction_version(producer.transactional_id) >= EPOCH_PER_TRANSACTION:
            # One step: no newer run can get between the end and the next epoch. The markers have this epoch, and brokers verify
            # batches for partitions that get none.
            answer = self._end(producer, committed=False, version=NEXT_EPOCH_SINCE)
            return Producer(producer.transactional_id, answer.producer_id, answer.producer_epoch)
        latest = self._next_epoch(producer, timeout_ms)
        return self._fence(latest, timeout_ms, partitions, groups)

    def _transaction_version(self, transactional_id: str) -> int:
        """The cluster's transaction.version, 0 if it has no such feature or does not report features."""
        try:
            answer = self.ask_coordinator(
                transactional_id,
                lambda: ApiVersionsRequest(
                    client_software_name="dbt-upsert-kafka", client_software_version="1", min_version=FEATURES_SINCE
                ),
                lambda answer: answer.error_code,
            )
        except errors.UnsupportedVersionError:
            return 0
        levels = {feature.name: feature.max_version_level for feature in answer.finalized_features or ()}
        return int(levels.get(TRANSACTION_VERSION, 0))

    def _next_epoch(self, producer: Producer, timeout_ms: int) -> Producer:
        """End the transaction and get the next epoch.

        A newer run's transaction stays open: brokers refuse EndTxn with an old epoch. InitProducerId would abort any open
        transaction, whatever epoch it names. So it is sent only directly after an EndTxn that was not refused.
        """
        retry = Retry(self)
        while True:
            # The error is the answer if no partition was added, so that there is nothing to abort.
            with suppress(errors.InvalidTxnStateError):
                self._end(producer, committed=False)
            try:
                return self._init_producer_id(producer.transactional_id, timeout_ms, producer)
            except errors.ConcurrentTransactionsError as error:
                retry.after(error)

    def _fence(self, latest: Producer, timeout_ms: int, partitions: Mapping[str, list[int]], groups: Iterable[str]) -> Producer:
        """Abort a transaction without records, whose markers let the partitions know the latest epoch.

        Brokers before Kafka 3.6 do not ask the coordinator about a batch: without the markers they would accept a late batch of
        the older epoch, and the next commit of the transactional id would make it visible.

        Returns:
            The epoch after it. An epoch is never used after its EndTxn, which may arrive again later.
        """
        for topic, numbers in partitions.items():
            # Nobody writes to a topic that does not exist or may not be written to.
            with suppress(errors.UnknownTopicOrPartitionError, errors.TopicAuthorizationFailedError):
                self._add_partitions(latest, topic, numbers, raises=(errors.UnknownTopicOrPartitionError,))
        for group in groups:
            with suppress(errors.GroupAuthorizationFailedError):
                self.add_group(latest, group)
        return self._next_epoch(latest, timeout_ms)

    def _init_producer_id(self, transactional_id: str, timeout_ms: int, latest: Producer | None = None) -> Producer:
        """Get a new epoch.

        Args:
            latest: refuse unless this is the latest epoch, or a transaction is open. CONCURRENT_TRANSACTIONS is raised then.
        """
        names = {"producer_id": latest.producer_id, "producer_epoch": latest.epoch} if latest else {}
        answer = self.ask_coordinator(
            transactional_id,
            lambda: InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, max_version=3, **names
            ),
            lambda answer: answer.error_code,
            raises=(errors.ConcurrentTransactionsError,) if latest else (),
        )
        return Producer(transactional_id, answer.producer_id, answer.producer_epoch)

    def _end(self, producer: Producer, committed: bool, version: int = 1) -> Any:
        return self.ask_coordinator(
            producer.transactional_id,
            lambda: EndTxnRequest(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=committed,
                min_version=version,
                max_version=version,
            ),
            lambda answer: answer.error_code,
        )

    def pause(self, seconds: float) -> None:
        """Wait, while the connections make progress."""
        until = self.now() + seconds
        while (left := until - self.now()) > 0:
            self.net.poll(timeout_ms=left * 1000)

    def ask_coordinator(
        self,
        name: str,
        request: Callable[[], Any],
        code: Callable[[Any], int],
        raises: Raised = (),
        key_type: int = TRANSACTION,
    ) -> Any:
        """Send a request to the coordinator of a transactional id or group, again after each retriable error.

        Args:
            request: makes the request.
            code: gets the error code from the answer.
            raises: retriable errors after which the caller decides what to do.
            key_type: of the name.
        """
        retry, key = Retry(self), (key_type, name)
        while True:
            try:
                if key not in self._coordinators:
                    self._coordinators[key] = self._find_coordinator(*key)
                answer = self._request(request(), self._coordinators[key])
                check(code(answer))
                return answer
            except errors.KafkaError as error:
                if not isinstance(error, errors.ConcurrentTransactionsError):
                    self._coordinators.pop(key, None)
                if isinstance(error, raises):
                    raise
                retry.after(error)

    def _find_coordinator(self, key_type: int, name: str) -> Any:
        node = self.manager.least_loaded_node()
        answer = self._request(FindCoordinatorRequest(key=name, key_type=key_type, max_version=2), node)
        check(answer.error_code)
        return self.manager.cluster.add_coordinator(answer, key_type, name)

    def _request(self, request: Any, node: Any) -> Any:
        answer = self.manager.send(request, node_id=node)
        self.net.poll(future=answer)
        if answer.failed():
            raise answer.exception
        return answer.value


class Retry:
    """How long to wait after each retriable error of a request, and when to give up."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pause = FIRST_PAUSE
        self._started: float | None = None

    def after(self, error: BaseException) -> None:
        """Wait before the request is repeated. Raise the error if it is not retriable, or if the time is up."""
        if not is_retriable(error):
            raise error
        now = self._client.now()
        self._started = self._started or now
        timeout = UNKNOWN_TOPIC_SECONDS if isinstance(error, errors.UnknownTopicOrPartitionError) else self._client.timeout
        if now - self._started > timeout:
            raise error
        self._client.pause(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


def is_retriable(error: BaseException) -> bool:
    """Whether the same request may succeed later."""
    # kafka-python does not call an unknown broker id retriable, but new metadata resolves it.
    return isinstance(error, errors.UnknownBrokerIdError) or (isinstance(error, errors.KafkaError) and error.retriable)


def check(code: int, detail: str | None = None) -> None:
    """Raise the error for an error code other than 0."""
    if code:
        raise errors.for_code(code)(detail)
