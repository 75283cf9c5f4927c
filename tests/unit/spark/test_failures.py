"""Failures: errors of Kafka and Spark are classified, by class or by text, and become one sentence with a remedy."""

from __future__ import annotations

import doctest

import pytest
from kafka import errors
from pyspark.errors import PySparkException

from dbt.adapters.upsert_kafka.spark import failures
from dbt.adapters.upsert_kafka.spark.failures import Cause, classify, first_line

SPARK = "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted: {}\n\tat org.x.Y"
JAVA = "org.apache.kafka.common.errors."
NOT_THERE = f"{JAVA}TimeoutException: Topic t not present in metadata after 4000 ms."
TEXTS = [
    (f"{JAVA}TopicAuthorizationException: Not authorized", Cause.TOPIC_DENIED, "may not write to the topic"),
    ("kafka.errors.TopicAuthorizationFailedError: [Error 29]", Cause.TOPIC_DENIED, "may not write to the topic"),
    (f"{JAVA}RecordTooLargeException: The message is 3600089 bytes", Cause.RECORD_TOO_LARGE, "max.message.bytes"),
    ("kafka.errors.MessageSizeTooLargeError: [Error 10]", Cause.RECORD_TOO_LARGE, "max.message.bytes"),
    (f"{JAVA}RecordBatchTooLargeException: x", Cause.BATCH_TOO_LARGE, "segment.bytes"),
    ("kafka.errors.RecordListTooLargeError: [Error 18]", Cause.BATCH_TOO_LARGE, "segment.bytes"),
    (f"{JAVA}NotEnoughReplicasException: x", Cause.TOO_FEW_REPLICAS, "min.insync.replicas"),
    ("kafka.errors.NotEnoughReplicasAfterAppendError: [Error 20]", Cause.TOO_FEW_REPLICAS, "min.insync.replicas"),
    (NOT_THERE, Cause.NO_METADATA, "no broker answered at b:9092"),
    (f"{NOT_THERE}\nCaused by: {JAVA}UnknownTopicOrPartitionException", Cause.TOPIC_UNKNOWN, "the topic was deleted"),
    ("ConfigException: No resolvable bootstrap urls given", Cause.NO_ADDRESS, "no address in b:9092 can be resolved"),
    ("ConfigException: Invalid value 7 for configuration acks", Cause.PROPERTY_REFUSED, "Invalid value 7 for configuration acks"),
    ("kafka.errors.ProducerFencedError: [Error 90]", Cause.FENCED, "a newer run of the same model"),
    ("kafka.errors.InvalidTxnStateError: [Error 48]", Cause.TRANSACTION_ENDED, "its transaction was ended"),
    ("[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_3_1 not found!", Cause.CHECKPOINT_LOST, "lost an executor"),
    ("ModuleNotFoundError: No module named 'kafka'", Cause.MODULE_MISSING, "the Python of Spark's executors lacks 'kafka'"),
    ("kafka.errors.LeaderNotAvailableError: [Error 5]", Cause.NO_LEADER, "no broker answers for a partition"),
    ("kafka.errors.NotLeaderForPartitionError: [Error 6]", Cause.NO_LEADER, "no broker answers for a partition"),
    ("kafka.errors.CoordinatorNotAvailableError: [Error 15]", Cause.NO_COORDINATOR, "no broker answers for its transactional id"),
    ("kafka.errors.RequestTimedOutError: [Error 7]", Cause.REQUEST_TIMED_OUT, "did not answer in time"),
    ("kafka.errors.ConcurrentTransactionsError: [Error 51]", Cause.LAST_TRANSACTION_OPEN, "run again"),
    ("InvalidRecordException: Compacted topic cannot accept message without key", Cause.RECORD_REFUSED, "record without a key"),
]


@pytest.mark.parametrize(("text", "cause", "sentence"), TEXTS)
def test_spark_error_is_classified_by_its_text(text: str, cause: Cause, sentence: str) -> None:
    failure = classify(PySparkException(SPARK.format(text)), "b:9092")
    assert failure.cause is cause and sentence in failure.reason
    assert "\n" not in failure.reason and "org." not in failure.reason


@pytest.mark.parametrize(
    "text",
    [
        "SecondAttemptError: Spark repeated a task that may have written",
        "kafka.errors.OutOfOrderSequenceNumberError: [Error 45]",
        "kafka.errors.UnknownProducerIdError: [Error 59]",
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)",
    ],
)
def test_lost_task_is_recognised_only_without_another_cause(text: str) -> None:
    assert classify(PySparkException(text), "b:9092").cause is Cause.TASK_LOST
    denied = f"{text}\n{JAVA}TopicAuthorizationException"
    assert classify(PySparkException(denied), "b:9092").cause is Cause.TOPIC_DENIED


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (errors.ProducerFencedError(), Cause.FENCED),
        (errors.InvalidProducerEpochError(), Cause.FENCED),
        (errors.InvalidTxnStateError(), Cause.TRANSACTION_ENDED),
        (errors.InvalidProducerIdMappingError(), Cause.TRANSACTION_ENDED),
        (errors.InvalidTransactionTimeoutError(), Cause.TRANSACTION_TIMEOUT_REFUSED),
        (errors.TransactionalIdAuthorizationFailedError(), Cause.TRANSACTIONAL_ID_DENIED),
        (errors.SaslAuthenticationFailedError(), Cause.CREDENTIALS_REFUSED),
        (errors.KafkaTimeoutError("Unable to bootstrap"), Cause.REQUEST_TIMED_OUT),
        (errors.NodeNotReadyError(1), Cause.NO_BROKER),
        (errors.CoordinatorNotAvailableError(), Cause.NO_COORDINATOR),
        # The text names a cause, the class does not.
        (errors.UnknownError("ProducerFenced"), Cause.UNKNOWN),
        (RuntimeError("ProducerFenced"), Cause.UNKNOWN),
    ],
)
def test_error_of_our_client_is_classified_by_its_class(error: Exception, cause: Cause) -> None:
    assert classify(error, "b:9092").cause is cause


def test_unknown_cause_is_reported_by_its_first_line() -> None:
    failure = classify(PySparkException("never heard of\n\tat org.apache.x"), "b:9092")
    assert (failure.cause, failure.reason) == (Cause.UNKNOWN, "never heard of")
    assert first_line(RuntimeError("never heard of\n\tat org.apache.x")) == "never heard of"


def test_examples_in_docstrings_are_right() -> None:
    assert doctest.testmod(failures, optionflags=doctest.ELLIPSIS).failed == 0
