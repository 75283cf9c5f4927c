"""Delivery by Spark's own Kafka sink: `none` and `at-least-once`.

Promises that every record reaches the topic before it returns (`at-least-once`), with producer defaults that suit bulk writing
and that the user's properties override. Readers see records as they arrive; a failed write is repaired by the next run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from pyspark.sql import DataFrame

from dbt.adapters.upsert_kafka import topics
from dbt.adapters.upsert_kafka.errors import DeliveryError, GuardError, UpsertKafkaError
from dbt.adapters.upsert_kafka.sinks import Delivery, Sink, Target
from dbt.adapters.upsert_kafka.sinks.failures import REASONS, SPARK_ERRORS, first_line, reason

logger = AdapterLogger("upsert_kafka")

PRODUCER_DEFAULTS = {
    "linger.ms": "20",
    "batch.size": str(256 * 1024),
    "buffer.memory": str(64 * 1024 * 1024),
    "compression.type": "lz4",
}
MAX_REQUEST_SIZE = 1024 * 1024
"""Of Java's producer, by default."""
MESSAGE_OVERHEAD = 100
"""Most that Java's producer adds to key and value when it judges a message's size; headers come on top."""
Guarantee = Literal["none", "at-least-once"]


class SparkSink(Sink):
    """Spark's Kafka sink, acknowledged by nobody (`none`) or by all in-sync replicas (`at-least-once`).

    Args:
        parallelism: number of Spark tasks that write; Spark's number if not given.
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
            # A producer keeps the order in which its task hands records over, so one task must own the key.
            tasks = (self._parallelism,) if self._parallelism else ()
            records = records.repartition(*tasks, "key").sortWithinPartitions("seq")
        elif self._parallelism:
            records = records.repartition(self._parallelism)
        columns = [column for column in ("key", "value", "partition", "headers") if column in records.columns]
        with target.kafka.admin() as admin:
            # What the topic takes, the producer must not refuse.
            largest = {"max.request.size": str(max(MAX_REQUEST_SIZE, topics.largest_message(admin, target.topic)))}
            options = target.kafka.spark_sink(**PRODUCER_DEFAULTS, **largest, **self.PROPERTIES[self.guarantee])
            if "headers" in columns:
                options["includeHeaders"] = "true"
            before = _ends(admin, target)
            try:
                records.select(*columns).write.format("kafka").options(**options).option("topic", target.topic).save()
            except SPARK_ERRORS as error:
                logger.debug(f"Writing topic '{target.topic}' failed: {error}")
                why = reason(str(error), target.kafka.bootstrap_servers) or first_line(error)
                # Java's producer only says that its time is over, where the topic tells why.
                if cause := _cause(admin, target.topic):
                    why = REASONS[cause]
                raise DeliveryError(
                    f"Topic '{target.topic}': {why}. A part of the changes may have been written; the next run completes them."
                ) from None
            after = _ends(admin, target)
        # Another writer's records lie between if there is one: Spark does not tell which were its own.
        offsets = {p: (before[p], after[p] - 1) for p in before.keys() & after.keys() if after[p] > before[p]}
        return Delivery(self.guarantee, offsets=dict(sorted(offsets.items())))


def _ends(admin: KafkaAdminClient, target: Target) -> dict[int, int]:
    try:
        return topics.ends(admin, target.topic, range(target.partitions))
    except KafkaError as error:
        # Good to know, but no reason to fail a write.
        logger.debug(f"Topic '{target.topic}': offsets not known: {error!r}")
        return {}


def check_size(model: str, largest: int, allowed: int, properties: Mapping[str, str]) -> None:
    """Refuse a message that Java's producer would refuse in the middle of the write.

    Args:
        largest: bytes of the largest key and value together.
        allowed: bytes that the topic takes; compressed, so that a larger `max.request.size` is the user's to try.
    """
    limit = int(properties.get("max.request.size", max(MAX_REQUEST_SIZE, allowed)))
    if largest + MESSAGE_OVERHEAD > limit:
        raise GuardError(
            f"{model}: the largest message has {largest} bytes and at most {limit} are allowed; raise the topic's "
            "max.message.bytes (`topic_config` of a new one) and, above it, max.request.size (`properties`). Nothing was written."
        )


def _cause(admin: KafkaAdminClient, topic: str) -> str | None:
    """What the topic's state says about a write that failed."""
    try:
        if topics.describe(admin, topic) is None:
            return "UnknownTopicOrPartition"
        return "NotEnoughReplicas" if topics.lacks_replicas(admin, topic) else None
    except (KafkaError, UpsertKafkaError):
        return None
