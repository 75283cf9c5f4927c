"""Why a write failed: the errors of Kafka and Spark, classified, each with one sentence and a remedy.

Errors of our own Kafka client are classified by their class. Errors of Spark's workers and of the JVM reach the driver only as
text, so `Cause.text` lists what to look for there; no other module decides by the text of an error. What readers of the topic
may see after a failure is for the sink to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kafka import errors
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

# What PySpark raises: Py4J's errors, its own, and those of Spark Connect. The cause is only in their text.
SPARK_ERRORS = (PySparkException, Py4JError)

_TOO_LARGE = (
    "a message is larger than allowed; raise the topic's max.message.bytes (`topic_config`), and for more than 1 MiB "
    "max.request.size (`properties`)"
)


class Cause(Enum):
    """What happened. Causes come before their consequences: the first member that matches an error is its cause.

    Args:
        sentence: for the user; `classify` fills in `{servers}`, `{detail}` and `{first_line}`.
        classes: kafka-python's error classes.
        text: parts of the text of a Spark error. Kafka's error classes are listed without "Error" or "Exception", because Java
            (which Spark's sink uses) and kafka-python (which our tasks use) name most of them alike.
    """

    CANCELLED = ("the write was cancelled", (), ("SPARK_JOB_CANCELLED", "OPERATION_CANCELED"))
    FENCED = (
        "a newer run of the same model has taken over its transactional id; run one at a time",
        (errors.ProducerFencedError, errors.InvalidProducerEpochError),
        ("ProducerFenced", "InvalidProducerEpoch"),
    )
    TRANSACTIONAL_ID_DENIED = (
        "the user may not write with its transactional id; grant WRITE on it",
        (errors.TransactionalIdAuthorizationFailedError,),
        ("TransactionalIdAuthorization",),
    )
    TOPIC_DENIED = (
        "the user may not write to the topic; grant WRITE on it",
        (errors.TopicAuthorizationFailedError,),
        ("TopicAuthorization",),
    )
    CLUSTER_DENIED = (
        "the user may not write idempotently; grant IDEMPOTENT_WRITE on the cluster, or WRITE on the topic",
        (errors.ClusterAuthorizationFailedError,),
        ("ClusterAuthorization",),
    )
    CREDENTIALS_REFUSED = (
        "the broker refused the credentials; check sasl.* in the profile's `kafka`",
        (errors.SaslAuthenticationFailedError,),
        ("SaslAuthentication", "AuthenticationFailed"),
    )
    TLS_FAILED = ("the TLS handshake failed; check ssl.* in the profile's `kafka`", (), ("SslAuthentication",))
    RECORD_TOO_LARGE = (
        _TOO_LARGE,
        (errors.MessageSizeTooLargeError,),
        ("RecordTooLarge", "MessageSizeTooLarge"),
    )
    BATCH_TOO_LARGE = (
        "a batch is larger than the topic's segment.bytes; lower batch.size (`properties`)",
        (errors.RecordListTooLargeError,),
        ("RecordBatchTooLarge", "RecordListTooLarge"),
    )
    TOO_FEW_REPLICAS = (
        "fewer replicas are in sync than the topic's min.insync.replicas requires; bring the brokers back",
        (errors.NotEnoughReplicasError, errors.NotEnoughReplicasAfterAppendError),
        ("NotEnoughReplicas",),
    )
    TRANSACTION_ENDED = (
        "its transaction was ended by the broker or by a newer run of the same model",
        (errors.InvalidTxnStateError, errors.InvalidProducerIdMappingError),
        ("InvalidTxnState", "InvalidProducerIdMapping"),
    )
    TRANSACTION_TIMEOUT_REFUSED = (
        "transaction.timeout.ms is more than the brokers' transaction.max.timeout.ms; lower it in `properties`",
        (errors.InvalidTransactionTimeoutError,),
        (),
    )
    RECORD_REFUSED = (
        "the broker refused a record; a compacted topic takes no record without a key",
        (errors.InvalidRecordError,),
        ("InvalidRecord",),
    )
    TIMESTAMP_REFUSED = (
        "the broker refused a record's timestamp; see the topic's message.timestamp settings",
        (errors.InvalidTimestampError,),
        ("InvalidTimestamp",),
    )
    TOPIC_UNKNOWN = (
        "the topic was deleted, or a partition does not exist",
        (errors.UnknownTopicOrPartitionError,),
        ("UnknownTopicOrPartition",),
    )
    TOPIC_ID_UNKNOWN = ("the topic was deleted during the write", (errors.UnknownTopicIdError,), ("UnknownTopicId",))
    POLICY = ("a policy of the broker refused the request", (errors.PolicyViolationError,), ("PolicyViolation",))
    NO_BROKER = (
        "no broker answers at {servers}",
        (errors.NodeNotReadyError, errors.KafkaConnectionError),
        ("NodeNotReady", "KafkaConnection"),
    )
    NO_ADDRESS = ("no address in {servers} can be resolved", (), ("No resolvable bootstrap urls",))
    NO_METADATA = ("no broker answered at {servers}, or the topic was deleted", (), ("not present in metadata",))
    NO_LEADER = (
        "no broker answers for a partition of the topic, which has no leader; bring the brokers back",
        (
            errors.LeaderNotAvailableError,
            errors.NotLeaderForPartitionError,
            errors.FencedLeaderEpochError,
            errors.UnknownLeaderEpochError,
            errors.ReplicaNotAvailableError,
            errors.KafkaStorageError,
            errors.UnknownBrokerIdError,
            errors.StaleMetadata,
            errors.MetadataEmptyBrokerList,
        ),
        (
            "LeaderNotAvailable",
            "NotLeader",
            "LeaderEpoch",
            "ReplicaNotAvailable",
            "KafkaStorage",
            "UnknownBrokerId",
            "StaleMetadata",
            "MetadataEmptyBrokerList",
        ),
    )
    NO_COORDINATOR = (
        "no broker answers for its transactional id; bring the brokers back",
        (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError, errors.CoordinatorLoadInProgressError),
        ("CoordinatorNotAvailable", "NotCoordinator", "CoordinatorLoadInProgress"),
    )
    LAST_TRANSACTION_OPEN = (
        "the brokers have not ended the model's last transaction yet; run again",
        (errors.ConcurrentTransactionsError,),
        ("ConcurrentTransactions",),
    )
    QUOTA = (
        "the brokers' quota for the user is used up; run again later",
        (errors.ThrottlingQuotaExceededError,),
        ("ThrottlingQuotaExceeded",),
    )
    REQUEST_TIMED_OUT = (
        "the brokers did not answer in time",
        (errors.KafkaTimeoutError, errors.RequestTimedOutError, errors.NetworkExceptionError),
        ("KafkaTimeout", "RequestTimedOut", "NetworkException"),
    )
    DELIVERY_TIMED_OUT = (
        "the brokers did not answer in time; see delivery.timeout.ms (`properties`)",
        (),
        ("errors.TimeoutException",),
    )
    PROPERTY_REFUSED = ("Kafka refused a property: {detail}", (), ("ConfigException",))
    CHECKPOINT_LOST = (
        "Spark lost an executor, and with it rows that were computed already",
        (),
        ("CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND",),
    )
    MODULE_MISSING = (
        "the Python of Spark's executors lacks {detail}: kafka-python, crc32c, pandas, pyarrow are needed there",
        (),
        ("No module named",),
    )
    OUT_OF_MEMORY = (
        "Spark ran out of memory; raise spark.driver.memory or spark.executor.memory",
        (),
        ("java.lang.OutOfMemoryError",),
    )
    # A task was lost or repeated, nothing was refused: the same write in a new transaction may succeed.
    TASK_LOST = (
        "{first_line}",
        (errors.OutOfOrderSequenceNumberError, errors.UnknownProducerIdError, errors.TransactionAbortableError),
        (
            "SecondAttemptError",
            "OutOfOrderSequence",
            "UnknownProducerId",
            "TransactionAbortable",
            "Python worker exited unexpectedly",
            "Python worker failed to connect back",
            "ExecutorLostFailure",
            "FetchFailed",
        ),
    )
    UNKNOWN = ("{first_line}", (), ())

    def __init__(self, sentence: str, classes: tuple[type[BaseException], ...], text: tuple[str, ...]) -> None:
        self.sentence = sentence
        self.classes = classes
        self.text = text


@dataclass(frozen=True)
class Failure:
    """What happened, and the sentence that says so."""

    cause: Cause
    reason: str


def classify(error: BaseException, servers: str) -> Failure:
    """Find the cause of an error: a Spark error by its text, any other by its class.

    Args:
        servers: bootstrap servers, for the sentence.

    >>> classify(errors.ProducerFencedError(), "broker:9092").cause
    <Cause.FENCED: ...>
    >>> classify(PySparkException("Job aborted: Python worker exited unexpectedly"), "broker:9092").cause
    <Cause.TASK_LOST: ...>
    >>> classify(errors.NodeNotReadyError(), "broker:9092").reason
    'no broker answers at broker:9092'
    """
    if isinstance(error, SPARK_ERRORS):
        cause, detail = _cause_in(str(error))
    else:
        cause, detail = next((cause for cause in Cause if isinstance(error, cause.classes)), Cause.UNKNOWN), ""
    return Failure(cause, cause.sentence.format(servers=servers, detail=detail, first_line=first_line(error)))


def _cause_in(text: str) -> tuple[Cause, str]:
    """The cause that a text names, and the rest of the line after it."""
    for cause in Cause:
        for sign in cause.text:
            if sign in text:
                after = text.split(sign, 1)[1].lstrip(": ").splitlines() or [""]
                return cause, after[0][:200]
    return Cause.UNKNOWN, ""


def first_line(error: BaseException) -> str:
    """The text of an error without its Java stack trace."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
