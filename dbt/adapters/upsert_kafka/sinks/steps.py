"""The steps of a transaction in their order: open, check, write, group offsets, commit or abort, and what is repeated when.

`Steps` uses neither Spark nor sockets: a subclass writes the records and connects. The sink's subclass is in `transaction`; the
simulator of the tests has one whose network, clock and tasks are simulated.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dbt.adapters.events.logging import AdapterLogger
from kafka.errors import KafkaError

from dbt.adapters.upsert_kafka.errors import DeliveryError, UpsertKafkaError, lacks
from dbt.adapters.upsert_kafka.sinks import Delivery, Target, group_commit
from dbt.adapters.upsert_kafka.sinks.protocol import Client
from dbt.adapters.upsert_kafka.sinks.record_batch import Producer
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS, Cause, Failure, classify

logger = AdapterLogger("upsert_kafka")

ATTEMPTS = 3
STATE_PARTITION = 0
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
COMMIT_INTERRUPTED = (
    "Either all of this run is visible to read_committed readers, or nothing and its transaction could not be aborted: until the "
    "next run, or for at most {} s, they then do not see what others write after it."
)


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


@dataclass(frozen=True)
class _Abort:
    """How an abort ended."""

    readers: str
    """What they may see now."""
    next_producer: Producer | None = None
    """Set if the transaction was aborted. No other run has used the transactional id since it was opened."""
    no_longer_ours: Failure | None = None
    """Set if a newer run has taken over the transactional id, or the broker has ended the transaction."""


class Report(Protocol):
    """What a task has written to one partition. The offsets are None if all acknowledgements were lost."""

    @property
    def partition(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def first_offset(self) -> Any: ...
    @property
    def last_offset(self) -> Any: ...


class Steps(ABC):
    """One delivery. Each step raises WriteError if it fails.

    Args:
        timeout_ms: of the transaction; the broker aborts it afterwards.
        now: the clock, in seconds.
    """

    def __init__(self, target: Target, transactional_id: str, timeout_ms: int, now: Callable[[], float] = time.monotonic) -> None:
        self._target = target
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._now = now
        self._opened_at = now()

    @abstractmethod
    def connect(self) -> Client:
        """Connect to the cluster."""

    @abstractmethod
    def prepare(self) -> None:
        """Do what comes before the transaction is open. Called again before each repetition."""

    @abstractmethod
    def write(self, producer: Producer) -> Sequence[Report]:
        """Write all records. Tasks of a failed write may still run when this has raised their error."""

    @abstractmethod
    def write_state(self, client: Client, producer: Producer, delivery: Delivery) -> None:
        """Write the topic's state record in the same transaction, last: other runs wait for it only until the commit."""

    @abstractmethod
    def wait_until_visible(self, reports: Sequence[Report]) -> None:
        """Wait until every partition has its commit marker, so that whoever reads next sees all records."""

    def recover(self) -> None:
        """Abort the transaction that a killed run left open; until then read_committed readers see nothing that came after it."""
        with self._client() as client:
            self._open(client)

    def deliver(self) -> Delivery:
        """Write all records in one transaction. After a lost task they are written again."""
        producer: Producer | None = None
        failures: list[Failure] = []
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self.prepare()
                return self._deliver_once(producer)
            except WriteError as error:
                if not error.may_be_repeated:
                    raise
                logger.debug(f"Topic '{self._target.topic}': write {attempt} of {ATTEMPTS} was aborted: {error.failure.reason}")
                producer = error.next_producer
                failures.append(error.failure)
        raise DeliveryError(
            f"Topic '{self._target.topic}': {ATTEMPTS} writes were aborted, the first one because of: {failures[0].reason}. "
            f"{NOTHING_VISIBLE}"
        )

    def _deliver_once(self, producer: Producer | None) -> Delivery:
        """Open, write, and commit or abort.

        Args:
            producer: of an aborted transaction of this delivery. No other run has written since then, or this one is fenced.
        """
        self._opened_at = self._now()
        state = self._target.plan.state
        is_alone = state is not None and state.is_alone
        with self._client(NOTHING_WRITTEN if producer is None else NOTHING_VISIBLE) as client:
            if producer is None:
                producer = self._open(client)
                self._check()
            try:
                reports = self.write(producer)
                delivery = self._delivery(reports)
                for group in self._target.plan.groups:
                    group_commit.commit_offsets(client, producer, group, self._target.kafka.user)
                if reports or is_alone:
                    self.write_state(client, producer, delivery)
            except BaseException as error:
                # Also for Ctrl-C: an open transaction blocks the topic's readers until it times out.
                abort = self._abort(producer)
                if not isinstance(error, Exception):
                    self._warn_interrupted(abort.readers)
                if not isinstance(error, (*SPARK_ERRORS, KafkaError)):
                    raise
                raise self._write_error(error, abort) from None
            if reports or is_alone or self._target.plan.groups:
                self._commit(client, producer)
        if reports:
            self.wait_until_visible(reports)
        return delivery

    def _delivery(self, reports: Sequence[Report]) -> Delivery:
        return Delivery(
            delivery="exactly-once",
            records=sum(report.records for report in reports),
            bytes=sum(report.bytes for report in reports),
            transactional_id=self._id,
            offsets={
                report.partition: (report.first_offset, report.last_offset)
                for report in sorted(reports, key=lambda r: r.partition)
            },
        )

    def _client(self, readers: str = NOTHING_WRITTEN) -> Client:
        try:
            return self.connect()
        except KafkaError as error:
            raise self._error(self._classify(error), readers) from None

    def _open(self, client: Client) -> Producer:
        try:
            return client.open(self._id, self._timeout_ms)
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

    def _abort(self, producer: Producer) -> _Abort:
        """Abort the transaction and fence tasks that still write."""
        try:
            # A new client: an interrupt may have left the other one with half an answer.
            with self._client() as client:
                groups = [commit.group for commit in self._target.plan.groups]
                return _Abort(NOTHING_VISIBLE, client.abort(producer, self._timeout_ms, self._partitions(), groups))
        except (KafkaError, UpsertKafkaError) as error:
            failure = self._classify(error)
            if failure.cause in NO_LONGER_OURS:
                return _Abort(NOTHING_VISIBLE, no_longer_ours=failure)
            return _Abort(NOT_ABORTED.format(self._timeout_ms // 1000))

    def _partitions(self) -> dict[str, list[int]]:
        """The partitions that the transaction may have written to, by topic."""
        state = self._target.plan.state
        return {self._target.topic: list(range(self._target.partitions)), **({state.topic: [STATE_PARTITION]} if state else {})}

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
        except BaseException:
            # Ctrl-C. If the coordinator has the commit, an abort changes nothing.
            abort = self._abort(producer)
            is_over = abort.next_producer is not None or abort.no_longer_ours is not None
            self._warn_interrupted(COMMIT_NOT_CONFIRMED if is_over else COMMIT_INTERRUPTED.format(self._timeout_ms // 1000))
            raise

    def _warn_interrupted(self, readers: str) -> None:
        logger.warning(f"Topic '{self._target.topic}': the write was interrupted. {readers}")

    def _classify(self, error: BaseException) -> Failure:
        """The cause of an error, with what is known about this transaction. The whole text goes to the debug log."""
        logger.debug(f"Topic '{self._target.topic}', transactional id '{self._id}': {type(error).__name__}: {error}")
        failure = classify(error, self._target.kafka.bootstrap_servers)
        timeout = self._timeout_ms
        given = f"transaction.timeout.ms={timeout}"
        match failure.cause:
            case Cause.TRANSACTION_TIMEOUT_REFUSED:
                why = f"{given} is more than the brokers' transaction.max.timeout.ms; lower it in `properties`"
            case Cause.TRANSACTIONAL_ID_DENIED:
                why = lacks(self._target.kafka.user, "WRITE", "transactional id", self._id)
            case cause if cause in NO_LONGER_OURS and self._now() - self._opened_at >= timeout / 1000:
                why = f"the write took longer than {given}, so the broker aborted it; raise it in `properties`"
            case _:
                return failure
        return replace(failure, reason=why)

    def _error(self, failure: Failure, readers: str) -> WriteError:
        return WriteError(self._target.topic, failure, readers)
