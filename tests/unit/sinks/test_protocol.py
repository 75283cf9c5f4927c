"""The writer of a transaction, without a broker: what it sends again after which error, and in which order."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import errors
from kafka.future import Future

from dbt.adapters.upsert_kafka.sinks import protocol
from dbt.adapters.upsert_kafka.sinks.protocol import Client, Retry, is_retriable
from dbt.adapters.upsert_kafka.sinks.record_batch import Producer
from dbt.adapters.upsert_kafka.sinks.writer import MAX_IN_FLIGHT, MAX_SEQUENCE, Writer

OK = 0
NOT_LEADER = errors.NotLeaderForPartitionError.errno
OUT_OF_ORDER = errors.OutOfOrderSequenceNumberError.errno
DUPLICATE = errors.DuplicateSequenceNumberError.errno


class Broker:
    """Client, connections and cluster in one. Each request gets the next answer: an error code or an exception."""

    def __init__(self, *answers: int | Exception) -> None:
        self.net = self.manager = self.cluster = self
        self.config = {"request_timeout_ms": 1000}
        self.timeout, self.now = 30.0, protocol.Network().now
        self.answers = deque(answers)
        self.leaders: deque[int | None] = deque()
        self.sent: list[bytes] = []
        self.added: list[list[int]] = []
        self.pauses: list[float] = []
        self.metadata = Future().success(None)

    def send(self, request: Any, node_id: int) -> Future:
        payload = request.topic_data[0].partition_data[0].records
        self.sent.append(payload)
        answer = self.answers.popleft() if self.answers else OK
        if isinstance(answer, Exception):
            return Future().failure(answer)
        partition = SimpleNamespace(error_code=answer, error_message=None, base_offset=100 * int(payload))
        return Future().success(SimpleNamespace(responses=[SimpleNamespace(partition_responses=[partition])]))

    def add_partitions(self, producer: Producer, topic: str, partitions: list[int]) -> None:
        self.added.append(partitions)

    def leader_for_partition(self, _: object) -> int | None:
        return self.leaders.popleft() if self.leaders else 1

    def request_update(self) -> Future:
        return self.metadata

    def poll(self, **_: object) -> None:
        pass

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def write(broker: Broker, batches: int, records: int = 1) -> Writer:
    """Write batches whose payloads are 0, 1, 2, ... to partition 0."""
    writer = Writer(cast(Any, broker), Producer("id", 1, 0), "topic")
    writer.add_partitions([0])
    for number in range(batches):
        writer.write(0, records, b"%d" % number)
    return writer


def test_batches_are_sent_once_and_their_offsets_reported() -> None:
    broker = Broker()
    writer = write(broker, 3, records=10)
    writer.flush()
    [state] = writer.partitions
    assert broker.sent == [b"0", b"1", b"2"]
    assert (state.records, state.bytes, state.first_offset, state.last_offset) == (30, 3, 0, 209)


def test_partition_is_added_to_the_transaction_once() -> None:
    broker = Broker()
    writer = write(broker, 0)
    writer.add_partitions([0, 1, 2])
    writer.add_partitions([1])
    assert broker.added == [[0], [1, 2]]


def test_second_batch_waits_for_the_first_and_later_ones_are_limited() -> None:
    broker = Broker()
    [state] = write(broker, 1).partitions
    assert (len(state.in_flight), state.first_batch_written) == (1, False)
    [state] = write(broker, 2).partitions
    assert (len(state.in_flight), state.first_batch_written) == (1, True)
    [state] = write(broker, 20).partitions
    assert len(state.in_flight) == MAX_IN_FLIGHT


def test_failed_batch_and_those_refused_after_it_are_sent_again_in_order() -> None:
    broker = Broker(OK, NOT_LEADER, OUT_OF_ORDER, OK)
    write(broker, 4).flush()
    assert broker.sent == [b"0", b"1", b"2", b"3", b"1", b"2"]


def test_batch_whose_answer_was_lost_is_a_duplicate_without_an_offset() -> None:
    broker = Broker(errors.KafkaConnectionError(), DUPLICATE)
    writer = write(broker, 1)
    writer.flush()
    [state] = writer.partitions
    assert broker.sent == [b"0", b"0"]
    assert (state.records, state.last_offset, list(state.in_flight)) == (1, None, [])


def test_batch_waits_for_a_leader() -> None:
    broker = Broker()
    broker.leaders.extend([None, -1])
    write(broker, 1).flush()
    assert (broker.sent, len(broker.pauses)) == ([b"0"], 2)


def test_pauses_grow() -> None:
    broker = Broker(*[NOT_LEADER] * 6)
    write(broker, 1).flush()
    assert broker.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]


def test_error_that_is_not_retriable_is_raised() -> None:
    with pytest.raises(errors.MessageSizeTooLargeError):
        write(Broker(errors.MessageSizeTooLargeError.errno), 1).flush()


def test_retriable_error_is_raised_after_the_timeout() -> None:
    broker = Broker(NOT_LEADER, NOT_LEADER)
    broker.timeout = -1
    with pytest.raises(errors.NotLeaderForPartitionError):
        write(broker, 1).flush()


def test_unknown_topic_is_raised_earlier_than_other_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "UNKNOWN_TOPIC_SECONDS", -1)
    broker = Broker(NOT_LEADER)
    broker.metadata = Future().failure(errors.UnknownTopicOrPartitionError())
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        write(broker, 1).flush()


def test_sequence_numbers_restart_at_zero() -> None:
    writer = write(Broker(), 0)
    writer.write(0, MAX_SEQUENCE, b"0")
    assert writer.next_sequence(0) == MAX_SEQUENCE
    writer.write(0, 3, b"1")
    assert writer.next_sequence(0) == 2


@pytest.mark.parametrize(
    ("error", "retriable"),
    [
        (errors.NotLeaderForPartitionError(), True),
        (errors.UnknownBrokerIdError(), True),
        (errors.ProducerFencedError(), False),
        (RuntimeError(), False),
    ],
)
def test_error_is_retriable_by_its_class(error: Exception, retriable: bool) -> None:
    assert is_retriable(error) is retriable
    if not retriable:
        with pytest.raises(type(error)):
            Retry(cast(Any, Broker())).after(error)


class Coordinator(Client):
    """A client whose requests get scripted answers: an error, or None for success. Each InitProducerId gives the next epoch."""

    def __init__(self, transaction_version: int = 1, **answers: list[Exception | None]) -> None:
        self.timeout, self.now = 30.0, protocol.Network().now
        self.transaction_version = transaction_version
        self.answers = answers
        self.sent: list[tuple[str, int]] = []

    def pause(self, seconds: float) -> None:
        pass

    def ask_coordinator(self, name: str, request: Any, code: Any, raises: Any = (), key_type: int = 1) -> Any:
        made = request()
        kind = type(made).__name__.removesuffix("Request")
        if kind == "ApiVersions" and self.transaction_version < 0:
            raise errors.IncompatibleBrokerVersion
        if kind == "ApiVersions":
            feature = SimpleNamespace(name="transaction.version", max_version_level=self.transaction_version)
            return SimpleNamespace(finalized_features=[feature] if self.transaction_version else None)
        epoch = made.v3_and_below_producer_epoch if kind == "AddPartitionsToTxn" else made.producer_epoch
        self.sent.append((kind, epoch))
        answers = self.answers.get(kind)
        if answers and (error := answers.pop(0)):
            raise error
        return SimpleNamespace(producer_id=1, producer_epoch=epoch + 1)


@pytest.mark.parametrize("transaction_version", [-1, 0, 1])
def test_abort_never_uses_an_epoch_after_its_end(transaction_version: int) -> None:
    client = Coordinator(transaction_version)
    assert client.abort(Producer("id", 1, 5), 1000, {"topic": [0, 1]}).epoch == 7
    assert client.sent == [
        ("EndTxn", 5),
        ("InitProducerId", 5),
        ("AddPartitionsToTxn", 6),
        ("EndTxn", 6),
        ("InitProducerId", 6),
    ]


def test_abort_also_marks_the_offsets_of_groups_with_the_next_epoch() -> None:
    """A late TxnOffsetCommit of the aborted transaction would open one that nobody ends."""
    client = Coordinator(1)
    client.abort(Producer("id", 1, 5), 1000, {"topic": [0]}, ["group"])
    assert client.sent[2:4] == [("AddPartitionsToTxn", 6), ("AddOffsetsToTxn", 6)]


def test_abort_asks_for_an_epoch_only_directly_after_its_transaction_was_ended() -> None:
    client = Coordinator(InitProducerId=[errors.ConcurrentTransactionsError()], EndTxn=[errors.InvalidTxnStateError()])
    client.abort(Producer("id", 1, 5), 1000, {})
    assert client.sent[:4] == [("EndTxn", 5), ("InitProducerId", 5)] * 2


def test_abort_with_transaction_version_2_is_one_request() -> None:
    client = Coordinator(2)
    assert client.abort(Producer("id", 1, 5), 1000, {"topic": [0]}).epoch == 6
    assert client.sent == [("EndTxn", 5)]


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_fenced_producer_sends_nothing_after_the_refused_end(transaction_version: int) -> None:
    client = Coordinator(transaction_version, EndTxn=[errors.InvalidProducerEpochError()])
    with pytest.raises(errors.InvalidProducerEpochError):
        client.abort(Producer("id", 1, 5), 1000, {"topic": [0]})
    assert client.sent == [("EndTxn", 5)]


def test_abort_succeeds_although_the_topic_is_gone() -> None:
    client = Coordinator(AddPartitionsToTxn=[errors.UnknownTopicOrPartitionError()])
    assert client.abort(Producer("id", 1, 5), 1000, {"topic": [0]}).epoch == 7
