"""Delivery by Spark's own Kafka sink: `none` and `at-least-once`.

With `at-least-once`, all in-sync replicas have acknowledged every record when `deliver` returns. Readers see records as they
arrive; after a failed write, the next run completes it. The producer's defaults suit bulk writes; a model's `properties` override
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from pyspark.sql import DataFrame

from dbt.adapters.upsert_kafka.errors import DeliveryError, GuardError, UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.sinks import Delivery, Sink, Target
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS, Cause, classify

logger = AdapterLogger("upsert_kafka")

PRODUCER_DEFAULTS = {
    "linger.ms": "20",
    "batch.size": str(256 * 1024),
    "buffer.memory": str(64 * 1024 * 1024),
    "compression.type": "lz4",
}
MAX_REQUEST_SIZE = 1024 * 1024
"""Default of Kafka's Java producer."""
MESSAGE_OVERHEAD = 100
"""The Java producer adds at most this to key and value when it checks a message's size. Headers are not included."""
Guarantee = Literal["none", "at-least-once"]


class SparkSink(Sink):
    """Spark's Kafka sink, with acks=0 (`none`) or acks=all (`at-least-once`).

    Args:
        parallelism: number of Spark tasks that write; by default as many as `records` has.
    """

    PROPERTIES: ClassVar[dict[str, dict[str, str]]] = {
        "none": {"acks": "0", "enable.idempotence": "false"},
        "at-least-once": {"acks": "all", "enable.idempotence": "true"},
    }

    def __init__(self, guarantee: Guarantee = "at-least-once", parallelism: int | None = None) -> None:
        self.guarantee = guarantee
        self._parallelism = parallelism

    def deliver(self, records: DataFrame, target: Target) -> Delivery:
        if "timestamp" in records.columns:
            raise DeliveryError(
                f"Topic '{target.topic}': sink_delivery_guarantee='{self.guarantee}' can't set the record's timestamp; "
                "use 'exactly-once' or leave the timestamp out. Nothing was written."
            )
        if "seq" in records.columns:
            # A producer keeps the order of its own task only, so all records of a key must be in one task.
            tasks = (self._parallelism,) if self._parallelism else ()
            records = records.repartition(*tasks, "key").sortWithinPartitions("seq")
        elif self._parallelism:
            records = records.repartition(self._parallelism)
        columns = [column for column in ("key", "value", "partition", "headers") if column in records.columns]
        admin = target.admin
        # The producer must accept every record that the topic accepts.
        largest = {"max.request.size": str(max(MAX_REQUEST_SIZE, topics.largest_message(admin, target.topic)))}
        options = target.kafka.spark_sink(**PRODUCER_DEFAULTS, **largest, **self.PROPERTIES[self.guarantee])
        # Spark reuses a producer with equal options. It would place keys by an old number of partitions, and would send the
        # sequence numbers of a topic that was deleted to the topic that was created after it.
        options["kafka.upsert.kafka.topic"] = f"{target.topic_id}/{target.partitions}"
        if "headers" in columns:
            options["includeHeaders"] = "true"
        before = _ends(admin, target)
        try:
            records.select(*columns).write.format("kafka").options(**options).option("topic", target.topic).save()
        except SPARK_ERRORS as error:
            logger.debug(f"Writing topic '{target.topic}' failed: {error}")
            # The Java producer may report only a timeout. The topic's state shows why.
            cause = _cause_in_topic(admin, target.topic)
            reason = cause.sentence if cause else classify(error, target.kafka.bootstrap_servers).reason
            raise DeliveryError(
                f"Topic '{target.topic}': {reason}. A part of the changes may have been written; the next run completes them."
            ) from None
        after = _ends(admin, target)
        # Includes the records of other writers, if there are any: Spark does not report which offsets it wrote.
        offsets = {p: (before[p], after[p] - 1) for p in before.keys() & after.keys() if after[p] > before[p]}
        return Delivery(self.guarantee, offsets=dict(sorted(offsets.items())))


def _ends(admin: KafkaAdminClient, target: Target) -> dict[int, int]:
    try:
        return topics.ends(admin, target.topic, range(target.partitions))
    except KafkaError as error:
        # The offsets are only reported. The write itself does not need them.
        logger.debug(f"Topic '{target.topic}': offsets not known: {error!r}")
        return {}


def check_size(model: str, largest: int, allowed: int, properties: Mapping[str, str]) -> None:
    """Refuse a message that the Java producer would refuse in the middle of the write.

    Args:
        largest: bytes of the largest key and value together.
        allowed: the topic's max.message.bytes. It limits the compressed size, so a user may set a larger `max.request.size`.
    """
    limit = int(properties.get("max.request.size", max(MAX_REQUEST_SIZE, allowed)))
    if largest + MESSAGE_OVERHEAD > limit:
        raise GuardError(
            f"{model}: the largest message has {largest} bytes and at most {limit} are allowed; raise the "
            "topic's max.message.bytes (`topic_config` of a new topic) and, above it, max.request.size (`properties`). "
            "Nothing was written."
        )


def _cause_in_topic(admin: KafkaAdminClient, topic: str) -> Cause | None:
    """Why a write failed, if the state of the topic shows it."""
    try:
        if topics.describe(admin, topic) is None:
            return Cause.TOPIC_UNKNOWN
        return Cause.TOO_FEW_REPLICAS if topics.lacks_replicas(admin, topic) else None
    except (KafkaError, UpsertKafkaError) as error:
        logger.debug(f"Topic '{topic}': state not known: {error!r}")
        return None
