"""Failures: the words of Kafka and Spark become one sentence with a remedy."""

from __future__ import annotations

import pytest

from dbt.adapters.upsert_kafka.sinks.failures import first_line, reason

SPARK = "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted: {}\n\tat org.x.Y"
JAVA = "org.apache.kafka.common.errors."
NOT_THERE = f"{JAVA}TimeoutException: Topic t not present in metadata after 4000 ms."


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{JAVA}TopicAuthorizationException: Not authorized", "may not write to the topic"),
        ("kafka.errors.TopicAuthorizationFailedError: [Error 29]", "may not write to the topic"),
        (f"{JAVA}RecordTooLargeException: The message is 3600089 bytes", "max.message.bytes"),
        ("kafka.errors.MessageSizeTooLargeError: [Error 10]", "max.message.bytes"),
        (f"{JAVA}NotEnoughReplicasException: x", "min.insync.replicas"),
        ("kafka.errors.NotEnoughReplicasAfterAppendError: [Error 20]", "min.insync.replicas"),
        (NOT_THERE, "no broker answered at b:9092"),
        (f"{NOT_THERE}\nCaused by: {JAVA}UnknownTopicOrPartitionException", "the topic was deleted"),
        ("ConfigException: No resolvable bootstrap urls given", "no address in b:9092 can be resolved"),
        ("ConfigException: Invalid value 7 for configuration acks", "Invalid value 7 for configuration acks"),
        ("kafka.errors.ProducerFencedError: [Error 90]", "a newer run of the same model"),
        ("[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_3_1 not found!", "lost an executor"),
        ("ModuleNotFoundError: No module named 'kafka'", "the Python of Spark's executors lacks 'kafka'"),
        ("kafka.errors.LeaderNotAvailableError: [Error 5]", "no broker answers for a partition"),
        ("kafka.errors.NotLeaderForPartitionError: [Error 6]", "no broker answers for a partition"),
        ("kafka.errors.CoordinatorNotAvailableError: [Error 15]", "no broker answers for its transactional id"),
        ("kafka.errors.RequestTimedOutError: [Error 7]", "did not answer in time"),
        ("kafka.errors.ConcurrentTransactionsError: [Error 51]", "run again"),
        ("InvalidRecordException: Compacted topic cannot accept message without key", "record without a key"),
    ],
)
def test_known_cause_is_one_sentence(text: str, sentence: str) -> None:
    found = reason(SPARK.format(text), "b:9092")
    assert found is not None and sentence in found
    assert "\n" not in found and "org." not in found


def test_unknown_cause_is_the_first_line() -> None:
    assert reason("java.lang.Nothing: never heard of", "b:9092") is None
    assert first_line(RuntimeError("never heard of\n\tat org.apache.x")) == "never heard of"
