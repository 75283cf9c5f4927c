"""The exactly-once sink without Spark and Kafka: what it does after each failure, and what it reports."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest
from kafka import errors
from pyspark.errors import PySparkException

from dbt.adapters.upsert_kafka.errors import DeliveryError, TopicMovedError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.sinks import Delivery, Target, TransactionPlan, steps, transaction
from dbt.adapters.upsert_kafka.sinks.record_batch import Producer
from dbt.adapters.upsert_kafka.sinks.steps import ATTEMPTS, WriteError
from dbt.adapters.upsert_kafka.sinks.transaction import TransactionSink

LOST = PySparkException("Job aborted\nPython worker exited unexpectedly (crashed)")
TOO_LARGE = PySparkException("kafka.errors.MessageSizeTooLargeError: [Error 10]")
FENCED = PySparkException("kafka.errors.InvalidProducerEpochError: [Error 47]")
NOT_VERIFIED = PySparkException("kafka.errors.InvalidTxnStateError: [Error 48]")
REPORT = SimpleNamespace(partition=0, records=2, bytes=90, first_offset=5, last_offset=6)


class Broker:
    """Stands in for the client and for the Spark job. Each step succeeds unless an error is set for it."""

    def __init__(self) -> None:
        self.connect: Exception | None = None
        self.open_error: Exception | None = None
        self.write: list[BaseException] = []
        """Errors of the first writes; later writes succeed."""
        self.check_error: Exception | None = None
        self.abort_error: Exception | None = None
        self.commit_error: BaseException | None = None
        self.epoch = 0
        self.steps: list[str] = []

    def client(self, *_: object) -> Self:
        _raise(self.connect)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def open(self, transactional_id: str, timeout_ms: int) -> Producer:
        self.steps.append("open")
        _raise(self.open_error)
        return self.next_producer()

    def abort(self, producer: Producer, timeout_ms: int, partitions: dict[str, list[int]], groups: list[str]) -> Producer:
        self.steps.append("abort")
        assert partitions == {"orders": [0, 1, 2, 3]}
        assert producer.epoch == self.epoch, "the abort must have the producer's own epoch"
        _raise(self.abort_error)
        return self.next_producer()

    def next_producer(self) -> Producer:
        self.epoch += 1
        return Producer("dbt.orders", 1, self.epoch)

    def check(self) -> None:
        self.steps.append("check")
        _raise(self.check_error)

    def commit(self, producer: Producer) -> None:
        self.steps.append("commit")
        _raise(self.commit_error)

    def written(self, producer: Producer) -> list[Any]:
        self.steps.append("write")
        assert producer.epoch == self.epoch, "only the latest epoch may write"
        _raise(self.write.pop(0) if self.write else None)
        return [REPORT]


def _raise(error: BaseException | None) -> None:
    if error is not None:
        raise error


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(transaction, "Client", broker.client)
    monkeypatch.setattr(transaction, "limits_of", lambda _: transaction.Limits(1000, 60_000))
    monkeypatch.setattr(transaction.Transaction, "encode", lambda *_: "batches")
    monkeypatch.setattr(transaction.Transaction, "write", broker.written)
    monkeypatch.setattr(transaction.topics, "ends", lambda *_: {0: 8})
    return broker


def deliver(check: Callable[[], None] | None = None) -> Delivery:
    target = Target("orders", 4, KafkaSettings("b:9092", {}), cast(Any, None), "dbt.orders", TransactionPlan(check))
    return TransactionSink().deliver(cast(Any, "records"), target)


def failure() -> str:
    with pytest.raises(DeliveryError) as raised:
        deliver()
    return str(raised.value.msg)


def test_successful_write_is_committed(broker: Broker) -> None:
    assert deliver() == Delivery("exactly-once", 2, 90, "dbt.orders", {0: (5, 6)})
    assert broker.steps == ["open", "write", "commit"]


def test_delivery_succeeds_if_the_end_offsets_are_unknown_after_the_commit(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction.topics, "ends", lambda *_: _raise(errors.KafkaTimeoutError()))
    assert deliver().records == 2


def test_delivery_succeeds_if_another_transaction_delays_visibility(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "VISIBLE_SECONDS", 0.05)
    monkeypatch.setattr(transaction.topics, "ends", lambda *_: {0: 6})
    assert deliver().records == 2


def test_write_is_aborted_and_repeated_after_a_lost_task(broker: Broker) -> None:
    broker.write = [LOST]
    assert deliver().records == 2
    # The second write has the epoch of the abort. Another "open" would fence a run that came between.
    assert broker.steps == ["open", "write", "abort", "write", "commit"]


def test_write_that_the_broker_calls_ended_is_repeated_if_the_transaction_could_be_aborted(broker: Broker) -> None:
    broker.write = [NOT_VERIFIED]
    assert deliver().records == 2
    assert broker.steps == ["open", "write", "abort", "write", "commit"]


def test_write_is_not_repeated_if_the_abort_failed(broker: Broker) -> None:
    broker.write, broker.abort_error = [LOST], errors.KafkaTimeoutError()
    assert "its transaction could not be aborted now" in failure()
    assert broker.steps == ["open", "write", "abort"]


def test_moved_topic_is_reported_before_the_first_write(broker: Broker) -> None:
    broker.check_error = TopicMovedError("orders", "was published by another run")
    with pytest.raises(TopicMovedError):
        deliver(check=broker.check)
    assert broker.steps == ["open", "check"]


def test_unknown_end_offsets_are_reported_before_the_first_write(broker: Broker) -> None:
    broker.check_error = errors.KafkaTimeoutError()
    with pytest.raises(WriteError, match=r"did not answer in time. Nothing was written."):
        deliver(check=broker.check)
    assert broker.steps == ["open", "check"]


def test_topic_is_checked_once_although_the_write_is_repeated(broker: Broker) -> None:
    broker.write = [LOST]
    deliver(check=broker.check)
    assert broker.steps == ["open", "check", "write", "abort", "write", "commit"]


def test_write_is_not_repeated_forever(broker: Broker) -> None:
    broker.write = [PySparkException("Out of memory\nPython worker exited unexpectedly"), *[LOST] * (ATTEMPTS - 1)]
    assert failure() == (
        "Topic 'orders': 3 writes were aborted, the first one because of: Out of memory. "
        "Nothing of this run is visible to read_committed readers; the next run writes it."
    )
    assert broker.steps == ["open", *["write", "abort"] * ATTEMPTS]


def test_write_is_not_repeated_if_a_newer_run_has_taken_over(broker: Broker) -> None:
    broker.write, broker.abort_error = [LOST], errors.ProducerFencedError()
    assert "a newer run of the same model has taken over its transactional id" in failure()
    assert broker.steps == ["open", "write", "abort"]


def test_refused_write_is_aborted_and_not_repeated(broker: Broker) -> None:
    broker.write = [TOO_LARGE]
    message = failure()
    assert "a message is larger than allowed" in message and "Nothing of this run is visible" in message
    assert broker.steps == ["open", "write", "abort"]


def test_transaction_that_could_not_be_aborted_is_reported(broker: Broker) -> None:
    broker.write, broker.abort_error = [TOO_LARGE], errors.CoordinatorNotAvailableError()
    message = failure()
    assert "a message is larger than allowed" in message
    assert "its transaction could not be aborted now: until the next run, or for at most 60 s" in message


def test_interrupt_aborts_the_transaction(broker: Broker) -> None:
    broker.write = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        deliver()
    assert broker.steps == ["open", "write", "abort"]


@pytest.mark.parametrize(
    ("abort_error", "message"),
    [
        (None, "interrupted. The commit was not confirmed: either all of this run is visible or nothing"),
        (errors.ProducerFencedError(), "interrupted. The commit was not confirmed: either all of this run is visible or nothing"),
        (
            errors.KafkaTimeoutError(),
            "or nothing and its transaction could not be aborted: until the next run, or for at most 60 s",
        ),
    ],
)
def test_interrupt_of_the_commit_aborts_the_transaction_and_is_reported(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, abort_error: Exception | None, message: str
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(steps.logger, "warning", warnings.append)
    broker.commit_error, broker.abort_error = KeyboardInterrupt(), abort_error
    with pytest.raises(KeyboardInterrupt):
        deliver()
    assert broker.steps == ["open", "write", "commit", "abort"]
    [warning] = warnings
    assert message in warning


def test_interrupt_of_a_write_that_could_not_be_aborted_is_reported(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(steps.logger, "warning", warnings.append)
    broker.write, broker.abort_error = [KeyboardInterrupt()], errors.KafkaTimeoutError()
    with pytest.raises(KeyboardInterrupt):
        deliver()
    assert "its transaction could not be aborted now: until the next run, or for at most 60 s" in warnings[0]


@pytest.mark.parametrize(
    "error", [errors.OutOfOrderSequenceNumberError(), errors.UnknownProducerIdError(), errors.TransactionAbortableError()]
)
def test_write_of_the_driver_is_repeated_after_the_same_errors_as_a_write_of_tasks(broker: Broker, error: Exception) -> None:
    broker.write = [error]
    assert deliver().records == 2
    assert broker.steps == ["open", "write", "abort", "write", "commit"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.ProducerFencedError(), "a newer run .* Nothing of this run is visible, unless the answer to its commit was lost"),
        (errors.InvalidTxnStateError(), "its transaction was ended .* unless the answer to its commit was lost"),
        (
            errors.RequestTimedOutError(),
            "did not answer in time. The commit was not confirmed: either all of this run is visible",
        ),
    ],
)
def test_failed_commit_reports_what_readers_may_see(broker: Broker, error: Exception, message: str) -> None:
    broker.commit_error = error
    with pytest.raises(WriteError, match=message):
        deliver()
    assert broker.steps == ["open", "write", "commit"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.InvalidTransactionTimeoutError(), r"transaction.timeout.ms=60000 is more than the brokers' transaction.max"),
        (errors.TransactionalIdAuthorizationFailedError(), r"lacks WRITE on transactional id 'dbt.orders'"),
        (errors.NotCoordinatorError(), r"no broker answers for its transactional id"),
        (errors.UnknownError("what is this"), r"what is this"),
    ],
)
def test_transaction_that_could_not_be_opened_is_reported(broker: Broker, error: Exception, message: str) -> None:
    broker.open_error = error
    with pytest.raises(WriteError, match=f"Topic 'orders': .*{message}.*. Nothing was written."):
        deliver()
    assert broker.steps == ["open"]


def test_unreachable_broker_is_reported(broker: Broker) -> None:
    broker.connect = errors.NodeNotReadyError()
    assert failure() == "Topic 'orders': no broker answers at b:9092. Nothing was written."


def test_repeated_write_that_finds_no_broker_says_that_nothing_is_visible(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.write = [LOST]
    answers = iter([None, None, errors.NodeNotReadyError()])

    def client(*_: object) -> Broker:
        _raise(next(answers))
        return broker

    monkeypatch.setattr(transaction, "Client", client)
    # The first write was aborted: records of it are in the topic.
    assert "Nothing of this run is visible to read_committed readers" in failure()
    assert broker.steps == ["open", "write", "abort"]


def test_fenced_write_is_reported_as_a_newer_run_before_the_transaction_timeout(broker: Broker) -> None:
    broker.write = [FENCED]
    assert "a newer run of the same model" in failure()


def test_fenced_write_is_reported_as_timed_out_after_the_transaction_timeout(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "limits_of", lambda _: transaction.Limits(1000, timeout_ms=0))
    broker.write = [FENCED]
    assert "the write took longer than transaction.timeout.ms=0, so the broker aborted it" in failure()


def test_transactional_id_is_required(broker: Broker) -> None:
    target = Target("orders", 4, KafkaSettings("b:9092", {}), cast(Any, None))
    with pytest.raises(ValueError, match="transactional id"):
        TransactionSink().deliver(cast(Any, "records"), target)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, transaction.Limits(512 * 1024, 900_000)),
        ({"batch.size": "9999999"}, transaction.Limits(1_000_000 - 61 - 40, 900_000)),
        ({"transaction.timeout.ms": "5000"}, transaction.Limits(512 * 1024, 5000)),
    ],
)
def test_limits_respect_topic_and_brokers(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], expected: transaction.Limits
) -> None:
    monkeypatch.setattr(transaction.topics, "config", lambda *_: {"max.message.bytes": "1000000"})
    monkeypatch.setattr(transaction.brokers, "config", lambda *_: {"transaction.max.timeout.ms": "900000"})
    assert transaction.limits_of(with_properties(properties)) == expected


def test_transaction_timeout_above_the_maximum_is_lowered_or_refused_if_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction.topics, "config", lambda *_: {"max.message.bytes": "1000000"})
    monkeypatch.setattr(transaction.brokers, "config", lambda *_: {"transaction.max.timeout.ms": "60000"})
    assert transaction.limits_of(with_properties({})).timeout_ms == 60_000
    with pytest.raises(DeliveryError, match=r"transaction.timeout.ms=70000 .* is more than the brokers' .*=60000. Nothing was"):
        transaction.limits_of(with_properties({"transaction.timeout.ms": "70000"}))


def test_limits_are_the_defaults_if_the_topic_may_not_be_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction.topics, "config", lambda *_: {})
    assert transaction.limits_of(with_properties({})) == transaction.Limits(512 * 1024, 900_000)


def with_properties(properties: dict[str, str]) -> Target:
    return Target("orders", 4, KafkaSettings("b:9092", properties), cast(Any, None), "dbt.orders")
