"""A model of Kafka's transaction coordinator and of a partition's log, as far as transactions of the sink depend on them.

Written from Kafka's protocol documentation and KIP-98, KIP-360 and KIP-890, for the request versions that the sink sends.
test_model.py replays the same requests on this model and on real brokers, and compares the answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

OK, NONE_GIVEN = 0, -1
OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE = 45, 47, 48
COORDINATOR_NOT_AVAILABLE, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED = 15, 49, 51, 90
LAST_EPOCH = 32767 - 1
REMEMBERED_BATCHES = 5


class State(Enum):
    EMPTY = auto()
    ONGOING = auto()
    PREPARE_COMMIT = auto()
    PREPARE_ABORT = auto()
    COMPLETE_COMMIT = auto()
    COMPLETE_ABORT = auto()


PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
ENDING = (*PREPARED, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


class Partition(NamedTuple):
    topic: str
    number: int


@dataclass
class Transaction:
    """What the coordinator knows about one transactional id."""

    producer_id: int
    epoch: int
    timeout: float
    last_producer_id: int = NONE_GIVEN
    last_epoch: int = NONE_GIVEN
    state: State = State.EMPTY
    partitions: set[Partition] = field(default_factory=set)
    started_at: float = 0.0
    next_producer_id: int = NONE_GIVEN
    """The producer id after the transaction that is being ended, if that is another one."""
    has_failed_fence: bool = False
    """Whether the epoch was raised and could not be written to the coordinator's log. It is not raised again then."""

    @property
    def next_identity(self) -> tuple[int, int]:
        return (self.producer_id, self.epoch) if self.next_producer_id == NONE_GIVEN else (self.next_producer_id, 0)


class Entry(NamedTuple):
    """A batch or a marker in a log. Each record of a batch and each marker takes one offset."""

    offset: int
    producer_id: int
    epoch: int
    records: tuple[Any, ...]
    commits: bool | None = None
    """Of a marker: whether it commits. None for a batch."""


@dataclass
class ProducerState:
    """What a partition remembers about a producer id."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    """First sequence, last sequence and offset."""
    open_since: int | None = None
    """Offset of the open transaction's first record."""


class Log:
    """One partition."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.end = 0
        self.producers: dict[int, ProducerState] = {}

    def append(self, producer_id: int, epoch: int, sequence: int, records: tuple[Any, ...]) -> tuple[int, int]:
        """Error code and offset."""
        known = self.producers.get(producer_id)
        if known is not None and epoch < known.epoch:
            return INVALID_PRODUCER_EPOCH, -1
        last_sequence = sequence + len(records) - 1
        if known is None or epoch > known.epoch:
            # A new producer may begin with any sequence. A new epoch of a known one begins with 0.
            if known is not None and sequence != 0:
                return OUT_OF_ORDER_SEQUENCE, -1
            known = self.producers[producer_id] = ProducerState(epoch, open_since=known.open_since if known else None)
        else:
            for first, last, offset in known.batches:
                if (first, last) == (sequence, last_sequence):
                    return OK, offset
            if known.batches and sequence != known.batches[-1][1] + 1:
                return OUT_OF_ORDER_SEQUENCE, -1
        offset = self.end
        known.batches.append((sequence, last_sequence, offset))
        if known.open_since is None:
            known.open_since = offset
        self.entries.append(Entry(offset, producer_id, epoch, records))
        self.end += len(records)
        return OK, offset

    def mark(self, producer_id: int, epoch: int, commits: bool) -> None:
        """Append a transaction marker, unless it is of an old epoch."""
        known = self.producers.setdefault(producer_id, ProducerState(epoch))
        if epoch < known.epoch:
            return
        if epoch > known.epoch:
            known.epoch = epoch
            known.batches.clear()
        known.open_since = None
        self.entries.append(Entry(self.end, producer_id, epoch, (), commits))
        self.end += 1

    @property
    def stable_end(self) -> int:
        """The last stable offset: where read_committed readers stop."""
        return min([state.open_since for state in self.producers.values() if state.open_since is not None], default=self.end)

    def committed(self) -> list[tuple[Any, int]]:
        """What a read_committed reader gets: each record, and the offset of the marker that committed it."""
        found: list[tuple[Any, int]] = []
        for index, entry in enumerate(self.entries):
            if entry.commits is not None or entry.offset >= self.stable_end:
                continue
            markers = (e for e in self.entries[index:] if e.commits is not None and e.producer_id == entry.producer_id)
            marker = next(markers)
            if marker.commits:
                found += [(record, marker.offset) for record in entry.records]
        return found


class Brokers:
    """The coordinator of all transactional ids, and the logs.

    Args:
        now: the clock.
        later: calls a function a bit later, each time after another pause: how markers get to the partitions.
        transaction_version: the cluster's feature. With 2, `abort` is supported.
        verifies: whether partitions ask the coordinator before the first batch of a transaction, as since Kafka 3.6.
        first_epoch: of a new transactional id. After the last epoch there is a new producer id.
    """

    def __init__(
        self,
        now: Callable[[], float],
        later: Callable[[Callable[[], None]], None],
        transaction_version: int = 2,
        verifies: bool = True,
        first_epoch: int = 0,
    ) -> None:
        self._now, self._later, self._verifies, self._first_epoch = now, later, verifies, first_epoch
        self.transaction_version = transaction_version
        self._next_producer_id = 1000
        self.ids: dict[str, Transaction] = {}
        self.logs: dict[Partition, Log] = {}
        self.ended_by_older_epochs = 0
        """Transactions that InitProducerId with the id of an older run has aborted."""
        self.append_fails: Callable[[], bool] = lambda: False
        """Whether the coordinator's log has too few replicas now. The answer is COORDINATOR_NOT_AVAILABLE."""
        self.failed_fences = 0

    def log(self, partition: Partition) -> Log:
        return self.logs.setdefault(partition, Log())

    def init_producer_id(self, name: str, timeout: float, producer_id: int = -1, epoch: int = -1) -> tuple[int, int, int]:
        """Error code, producer id, epoch."""
        found = self.ids.get(name)
        if found is None:
            if self.append_fails():
                return COORDINATOR_NOT_AVAILABLE, -1, -1
            found = self.ids[name] = Transaction(self._new_producer_id(), self._first_epoch, timeout)
            return OK, found.producer_id, found.epoch
        is_named = producer_id != NONE_GIVEN
        was_rotated = producer_id == found.last_producer_id and epoch >= LAST_EPOCH
        if is_named and producer_id != found.producer_id and not was_rotated:
            return INVALID_PRODUCER_EPOCH, -1, -1
        if found.state in PREPARED:
            return CONCURRENT_TRANSACTIONS, -1, -1
        if found.state is State.ONGOING:
            # Whatever epoch the request names.
            if not self._fence(found):
                return COORDINATOR_NOT_AVAILABLE, -1, -1
            self.ended_by_older_epochs += is_named and epoch < found.epoch
            return CONCURRENT_TRANSACTIONS, -1, -1
        if is_named and epoch == found.last_epoch and not (epoch == found.epoch and producer_id == found.producer_id):
            # A repeated request whose answer was lost.
            return OK, found.producer_id, found.epoch
        if is_named and not (producer_id == found.producer_id and epoch == found.epoch):
            return INVALID_PRODUCER_EPOCH, -1, -1
        if self.append_fails():
            return COORDINATOR_NOT_AVAILABLE, -1, -1
        found.last_producer_id, found.last_epoch = (found.producer_id, found.epoch) if is_named else (NONE_GIVEN, NONE_GIVEN)
        if found.epoch >= LAST_EPOCH:
            found.last_producer_id, found.producer_id, found.epoch = found.producer_id, self._new_producer_id(), 0
        else:
            found.epoch += 1
        found.state, found.timeout = State.EMPTY, timeout
        return OK, found.producer_id, found.epoch

    def add_partitions(self, name: str, producer_id: int, epoch: int, partitions: set[Partition]) -> int:
        found = self.ids.get(name)
        if found is None or found.producer_id != producer_id:
            return INVALID_PRODUCER_ID_MAPPING
        if found.epoch != epoch:
            return INVALID_PRODUCER_EPOCH
        if found.state in PREPARED:
            return CONCURRENT_TRANSACTIONS
        if self.append_fails():
            return COORDINATOR_NOT_AVAILABLE
        if found.state is not State.ONGOING:
            found.state, found.partitions, found.started_at = State.ONGOING, set(), self._now()
            self._watch(found)
        found.partitions |= partitions
        return OK

    def end(self, name: str, producer_id: int, epoch: int, commits: bool) -> int:
        found = self.ids.get(name)
        if found is None or found.producer_id != producer_id:
            return INVALID_PRODUCER_ID_MAPPING
        if found.epoch != epoch:
            return INVALID_PRODUCER_EPOCH
        prepare, complete = (
            (State.PREPARE_COMMIT, State.COMPLETE_COMMIT) if commits else (State.PREPARE_ABORT, State.COMPLETE_ABORT)
        )
        if found.state is complete:
            return OK
        if found.state is prepare:
            return CONCURRENT_TRANSACTIONS
        if found.state is not State.ONGOING:
            return INVALID_TXN_STATE
        if self.append_fails():
            return COORDINATOR_NOT_AVAILABLE
        self._end(found, commits)
        return OK

    def abort(self, name: str, producer_id: int, epoch: int) -> tuple[int, int, int]:
        """EndTxn of transaction.version 2, which aborts: error code, and the next producer id and epoch.

        The next epoch is for the same producer id, or the first one of the next id.
        """
        found = self.ids.get(name)
        if found is None:
            return INVALID_PRODUCER_ID_MAPPING, -1, -1
        is_completed = found.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
        was_rotated = is_completed and producer_id == found.last_producer_id and epoch == LAST_EPOCH and found.epoch == 0
        if found.producer_id != producer_id and not was_rotated:
            return INVALID_PRODUCER_ID_MAPPING, -1, -1
        # The answer to the same request was lost: the coordinator has the next epoch already.
        is_repeated = was_rotated or (found.epoch == epoch + 1 and found.state in ENDING)
        if not is_repeated and (found.epoch != epoch or found.state in PREPARED):
            return PRODUCER_FENCED, -1, -1
        if is_repeated and found.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT):
            return INVALID_TXN_STATE, -1, -1
        if is_repeated and found.state is State.PREPARE_ABORT:
            return CONCURRENT_TRANSACTIONS, -1, -1
        if not is_repeated and self.append_fails():
            return COORDINATOR_NOT_AVAILABLE, -1, -1
        if not is_repeated:
            self._end_with_next_epoch(found)
        return OK, *found.next_identity

    def _end_with_next_epoch(self, found: Transaction) -> None:
        """The markers have the next epoch. A new producer id counts when they are written."""
        if found.state is not State.ONGOING:
            found.partitions = set()
        if not found.has_failed_fence:
            found.last_producer_id, found.last_epoch = found.producer_id, found.epoch
            found.epoch += 1
        if found.epoch > LAST_EPOCH:
            found.next_producer_id = self._new_producer_id()
        self._end(found, commits=False)

    def produce(
        self, partition: Partition, producer_id: int, epoch: int, sequence: int, records: tuple[Any, ...]
    ) -> tuple[int, int]:
        """Error code and offset."""
        log = self.log(partition)
        known = log.producers.get(producer_id)
        is_open = known is not None and known.open_since is not None and known.epoch == epoch
        is_repeated = known is not None and known.epoch == epoch and any(first == sequence for first, _, _ in known.batches)
        if self._verifies and not is_open and not is_repeated and (code := self._verify(partition, producer_id, epoch)):
            return code, -1
        return log.append(producer_id, epoch, sequence, records)

    def expire(self, name: str) -> bool:
        """Forget a transactional id that nobody used for seven days. One that has an open transaction does not expire."""
        found = self.ids.get(name)
        if found is None or found.state is State.ONGOING or found.state in PREPARED:
            return False
        del self.ids[name]
        return True

    def _verify(self, partition: Partition, producer_id: int, epoch: int) -> int:
        found = next((found for found in self.ids.values() if found.producer_id == producer_id), None)
        if found is None:
            return INVALID_PRODUCER_ID_MAPPING
        if found.epoch != epoch:
            return INVALID_PRODUCER_EPOCH
        if found.state in PREPARED:
            return CONCURRENT_TRANSACTIONS
        return OK if found.state is State.ONGOING and partition in found.partitions else INVALID_TXN_STATE

    def _watch(self, found: Transaction) -> None:
        """Abort the transaction when it has timed out."""
        started_at = found.started_at

        def abort() -> None:
            if found.state is not State.ONGOING or found.started_at != started_at:
                return
            if self._now() < started_at + found.timeout or not self._fence(found):
                self._later(abort)

        self._later(abort)

    def _fence(self, found: Transaction) -> bool:
        """Abort with the next epoch, which the partitions get with the markers.

        Returns:
            False if the coordinator's log has too few replicas. The coordinator then knows the next epoch already (KAFKA-9666).
        """
        fails = self.append_fails()
        if not fails and self.transaction_version >= 2:
            # As its own EndTxn would, so that the producer's repeated requests are answered.
            self._end_with_next_epoch(found)
            return True
        if not found.has_failed_fence:
            found.epoch += 1
            found.last_producer_id = found.last_epoch = NONE_GIVEN
        found.has_failed_fence = fails
        self.failed_fences += fails
        if not fails:
            self._end(found, commits=False)
        return not fails

    def _end(self, found: Transaction, commits: bool) -> None:
        found.state = State.PREPARE_COMMIT if commits else State.PREPARE_ABORT
        found.has_failed_fence = False
        producer_id, epoch, left = found.producer_id, found.epoch, set(found.partitions)

        def mark(partition: Partition) -> None:
            self.log(partition).mark(producer_id, epoch, commits)
            left.discard(partition)
            complete()

        def complete() -> None:
            if not left:
                found.state = State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT
                found.producer_id, found.epoch = found.next_identity
                found.next_producer_id = NONE_GIVEN

        for partition in sorted(found.partitions):
            self._later(lambda partition=partition: mark(partition))  # type: ignore[misc]
        if not left:
            self._later(complete)

    def _new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id
