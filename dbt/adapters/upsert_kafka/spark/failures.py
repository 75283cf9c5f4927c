"""Why a delivery failed, in one line: the errors of Kafka and Spark as a sentence with a remedy.

Both sinks use it; what the topic holds after the failure is for the sink to say.
"""

from __future__ import annotations

from collections.abc import Mapping

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

# What PySpark raises: Py4J's errors, its own, and those of Spark Connect. The cause is only in their text.
SPARK_ERRORS = (PySparkException, Py4JError)

TOO_LARGE = (
    "a message is larger than allowed; raise the topic's max.message.bytes (`topic_config`), and for more than 1 MiB "
    "max.request.size (`properties`)"
)
NO_LEADER = "no broker answers for a partition of the topic, which has no leader; bring the brokers back"
NO_COORDINATOR = "no broker answers for its transactional id; bring the brokers back"
LATE = "the brokers did not answer in time"
# Kafka's error classes without "Exception" or "Error": the names are the same in Java and kafka-python, and in the text of a
# Spark exception they are all that is left of the cause. The first that is found wins, so causes come before their consequences.
REASONS: Mapping[str, str] = {
    "SPARK_JOB_CANCELLED": "the write was cancelled",
    "OPERATION_CANCELED": "the write was cancelled",
    "ProducerFenced": "a newer run of the same model has taken over its transactional id; run one at a time",
    "InvalidProducerEpoch": "a newer run of the same model has taken over its transactional id; run one at a time",
    "TransactionalIdAuthorization": "the user may not write with its transactional id; grant WRITE on it",
    "TopicAuthorization": "the user may not write to the topic; grant WRITE on it",
    "ClusterAuthorization": "the user may not write idempotently; grant IDEMPOTENT_WRITE on the cluster, or WRITE on the topic",
    "SaslAuthentication": "the broker refused the credentials; check sasl.* in the profile's `kafka`",
    "AuthenticationFailed": "the broker refused the credentials; check sasl.* in the profile's `kafka`",
    "SslAuthentication": "the TLS handshake failed; check ssl.* in the profile's `kafka`",
    "RecordTooLarge": TOO_LARGE,
    "MessageSizeTooLarge": TOO_LARGE,
    "RecordBatchTooLarge": "a batch is larger than the topic's segment.bytes; lower batch.size (`properties`)",
    "NotEnoughReplicas": "fewer replicas are in sync than the topic's min.insync.replicas asks for; bring the brokers back",
    "InvalidTxnState": "its transaction was ended by the broker or by a newer run of the same model",
    "InvalidProducerIdMapping": "its transaction was ended by the broker or by a newer run of the same model",
    "InvalidRecord": "the broker refused a record; a compacted topic takes no record without a key",
    "InvalidTimestamp": "the broker refused a record's timestamp; see the topic's message.timestamp settings",
    "UnknownTopicOrPartition": "the topic was deleted, or a partition is not there",
    "UnknownTopicId": "the topic was deleted during the write",
    "PolicyViolation": "a policy of the broker refused the request",
    "NoBrokersAvailable": "no broker answers at {servers}",
    "NodeNotReady": "no broker answers at {servers}",
    "KafkaConnection": "no broker answers at {servers}",
    "No resolvable bootstrap urls": "no address in {servers} can be resolved",
    "not present in metadata": "no broker answered at {servers}, or the topic was deleted",
    **dict.fromkeys(("LeaderNotAvailable", "NotLeader", "LeaderEpoch", "ReplicaNotAvailable", "KafkaStorage"), NO_LEADER),
    **dict.fromkeys(("UnknownBrokerId", "StaleMetadata", "MetadataEmptyBrokerList"), NO_LEADER),
    **dict.fromkeys(("CoordinatorNotAvailable", "NotCoordinator", "CoordinatorLoadInProgress"), NO_COORDINATOR),
    "ConcurrentTransactions": "the brokers have not ended the model's last transaction yet; run again",
    "ThrottlingQuotaExceeded": "the brokers' quota for the user is used up; run again later",
    **dict.fromkeys(("KafkaTimeout", "RequestTimedOut", "NetworkException"), LATE),
    "errors.TimeoutException": "the brokers did not answer in time; see delivery.timeout.ms (`properties`)",
    "ConfigException": "Kafka refused a property: {detail}",
    "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND": "Spark lost an executor, and with it rows that were computed already",
    "No module named": "the Python of Spark's executors lacks {detail}: kafka-python, crc32c, pandas, pyarrow are needed there",
    "java.lang.OutOfMemoryError": "Spark ran out of memory; raise spark.driver.memory or spark.executor.memory",
}


def reason(text: str, servers: str) -> str | None:
    """The sentence for the first known cause that `text` names, or None."""
    for sign, sentence in REASONS.items():
        if sign in text:
            after = text.split(sign, 1)[1].lstrip(": ").splitlines() or [""]
            return sentence.format(servers=servers, detail=after[0][:200])
    return None


def first_line(error: BaseException) -> str:
    """An unknown error as one line without a Java stack trace."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
