"""How an existing topic differs from what its model asks for, and the requests that alter the topic.

Only changes that keep every record are made: `Drift.problem` says why another one is not. Leaves to `publish.configuration`
whether the user wants a change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import ClusterAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

from dbt.adapters.upsert_kafka.errors import MissingRightError, UpsertKafkaError, kafka_error_text
from dbt.adapters.upsert_kafka.kafka_client.internals import describe_cluster
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic, TopicSettings

PARTITIONS, REPLICATION, CLEANUP = "partitions", "replication_factor", "cleanup.policy"
UNLIMITED = -1
KEY_PLACEMENT = (
    "keys that are in the topic stay in their partition, and new keys are spread over all partitions. Consumers that expect "
    "Kafka's default placement (joins of Kafka Streams, other producers) look for old keys in another partition"
)

HARMLESS = frozenset(
    {
        *("compression.type", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
        *("index.interval.bytes", "preallocate", "min.cleanable.dirty.ratio", "max.compaction.lag.ms"),
    }
)
"""Configs that don't decide what is kept. When compaction runs is one of them: it keeps the last record of each key."""
OF_SEGMENTS = frozenset({"segment.bytes", "segment.ms", "segment.index.bytes"})
"""Harmless in a topic that is only compacted. Retention deletes closed segments, so with it they may only be raised."""
OLD_SEGMENTS = "segments are closed, and then deleted by retention, sooner"
SOONER = "records are deleted sooner"
RAISED = {
    "retention.ms": SOONER,
    "retention.bytes": SOONER,
    "delete.retention.ms": "tombstones are deleted sooner",
    "min.compaction.lag.ms": "compaction deletes earlier values sooner",
    "min.insync.replicas": "fewer replicas have a record that was acknowledged",
    "max.message.bytes": "the topic's records may be larger than it accepts",
}
"""Configs that may be raised, with what lowering them means."""
UNCLEAN = "unclean.leader.election.enable"


@dataclass(frozen=True)
class Drift:
    """One setting in which a topic differs from its model."""

    setting: str
    """`partitions`, `replication_factor`, or a topic config."""
    now: str
    wanted: str
    problem: str = ""
    """Why the change is not made; empty if it can be."""
    meaning: str = ""
    """What the change means to consumers."""

    def __str__(self) -> str:
        return f"{self.setting} is {self.now}, the model asks for {self.wanted}"


def drift(topic: Topic, settings: TopicSettings) -> tuple[Drift, ...]:
    """The settings in which an existing topic differs. Settings that the model does not mention are not compared."""
    found = []
    if settings.partitions is not None and settings.partitions != topic.partitions:
        fewer = settings.partitions < topic.partitions
        problem = "Kafka can't remove partitions, and a new topic would lose the records" if fewer else ""
        found.append(Drift(PARTITIONS, str(topic.partitions), str(settings.partitions), problem, "" if fewer else KEY_PLACEMENT))
    if settings.replication_factor is not None and topic.replicas and settings.replication_factor != topic.replicas:
        fewer = settings.replication_factor < topic.replicas
        problem = "with fewer replicas, records are lost sooner if brokers fail" if fewer else ""
        found.append(Drift(REPLICATION, str(topic.replicas), str(settings.replication_factor), problem))
    wanted = {**({CLEANUP: "compact"} if settings.compacted and not _is_compacted(topic) else {}), **settings.config}
    for name, value in sorted(wanted.items()):
        now = topic.config.get(name)
        if now is not None and _normal(now) != _normal(value):
            found.append(Drift(name, now, value, _config_problem(topic, name, now, value)))
    return tuple(found)


def apply(admin: KafkaAdminClient, topic: Topic, drifts: Iterable[Drift]) -> None:
    """Alter the topic. Partitions come last: they change what a run compares with.

    Args:
        drifts: without problems.

    Raises:
        UpsertKafkaError: the cluster refused the change. Configs are altered together or not at all.
    """
    drifts = tuple(drifts)
    changes = {change.setting: change.wanted for change in drifts}
    partitions, replicas = changes.pop(PARTITIONS, None), changes.pop(REPLICATION, None)
    try:
        if changes:
            _alter_configs(admin, topic.name, changes)
        if replicas is not None:
            _add_replicas(admin, topic, int(replicas))
        if partitions is not None:
            admin.create_partitions({topic.name: int(partitions)})
            admin.wait_for_topics([topic.name])
    except (TopicAuthorizationFailedError, ClusterAuthorizationFailedError):
        raise MissingRightError("ALTER", "topic", topic.name) from None
    except (KafkaError, ValueError) as error:
        raise UpsertKafkaError(
            f"topic '{topic.name}' could not be altered ({'; '.join(map(str, drifts))}): {_reason(error)}. Nothing was "
            "published. Correct the model's settings, or set on_configuration_change='continue' to publish without this change."
        ) from error


def _alter_configs(admin: KafkaAdminClient, name: str, configs: dict[str, str]) -> None:
    """Alter configs. kafka-python returns the text of an error that is of one topic, and does not raise it."""
    found = admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs=configs)])
    result = found["topic"][name]
    if result == "OK":
        return
    if TopicAuthorizationFailedError.__name__ in result:
        raise MissingRightError("ALTER_CONFIGS", "topic", name)
    raise ValueError(re.sub(r"^\[Error \d+\] ", "", result))


def _reason(error: Exception) -> str:
    """Why the cluster refuses a change, in one line."""
    text = kafka_error_text(error) if isinstance(error, KafkaError) else str(error)
    return " ".join(text.split()).rstrip(".")


def _add_replicas(admin: KafkaAdminClient, topic: Topic, number: int) -> None:
    """Keep the replicas of each partition, and add brokers in turn. The cluster copies the records in the background."""
    brokers = sorted(broker["broker_id"] for broker in describe_cluster(admin)["brokers"])
    if number > len(brokers):
        raise UpsertKafkaError(
            f"topic '{topic.name}': replication_factor={number}, and the cluster has {len(brokers)} brokers. "
            "Nothing was published."
        )
    [found] = admin.describe_topics([topic.name])
    wanted = {}
    for partition in found["partitions"]:
        index, current = partition["partition_index"], list(partition["replica_nodes"])
        others = [broker for broker in brokers[index % len(brokers) :] + brokers[: index % len(brokers)] if broker not in current]
        wanted[TopicPartition(topic.name, index)] = current + others[: max(0, number - len(current))]
    refused = {partition: error for partition, error in admin.alter_partition_reassignments(wanted).items() if error is not None}
    for error in refused.values():
        raise error()


def _is_compacted(topic: Topic) -> bool:
    return topic.cleanup_policy is None or "compact" in topic.cleanup_policy


def _normal(value: str) -> frozenset[str]:
    """The value as a set: the order of a list such as `compact,delete` has no meaning."""
    return frozenset(part.strip() for part in str(value).split(","))


def _config_problem(topic: Topic, name: str, now: str, wanted: str) -> str:
    """Why a config is not changed: records would be lost that are kept now. Only what is known to be safe is changed."""
    if name == CLEANUP:
        if "delete" in _normal(wanted) - _normal(now):
            return "retention would delete records, also the last values of keys"
        if "compact" in _normal(wanted) - _normal(now):
            return "compaction would delete all but the last record of each key"
        return ""
    if name in HARMLESS or (name in OF_SEGMENTS and "delete" not in (topic.cleanup_policy or "delete")):
        return ""
    if name in RAISED or name in OF_SEGMENTS:
        return f"a lower {name} means that {RAISED.get(name, OLD_SEGMENTS)}" if _limit(wanted) < _limit(now) else ""
    if name == UNCLEAN:
        return "" if wanted.strip().lower() == "false" else "a replica that lacks records could become the leader"
    return "it is not known that no record is lost"


def _limit(value: str) -> float:
    try:
        return float("inf") if int(value) == UNLIMITED else int(value)
    except ValueError:
        return float("inf")
