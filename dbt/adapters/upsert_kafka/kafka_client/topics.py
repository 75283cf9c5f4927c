"""Topics in the cluster: describe, create, delete, and compare with what a model asks for.

The only module that describes and creates topics. Never alters a topic; deletes one only for operations that drop orphans or
environments. Leaves to `publish.scan` how records are read, to `sinks` how they are written, to `groups` who reads them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidConfigurationError,
    InvalidReplicationFactorError,
    KafkaError,
    OffsetNotAvailableError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from dbt.adapters.upsert_kafka.credentials import TOPIC_NAME
from dbt.adapters.upsert_kafka.errors import MissingRightError, UpsertKafkaError, count_of, kafka_error_text
from dbt.adapters.upsert_kafka.kafka_client import brokers
from dbt.adapters.upsert_kafka.kafka_client.internals import describe_cluster

NO_TOPIC_ID = "00000000-0000-0000-0000-000000000000"
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
DEFAULT_MAX_MESSAGE_BYTES = 1024 * 1024 + 12
"""Kafka's default of max.message.bytes."""
NEW_LEADER_SECONDS, NEW_LEADER_PAUSE, NEW_TOPIC_SECONDS = 30.0, 0.1, 10.0
LEADER_TIMEOUT_MS = 120_000
"""A new topic is listed before all of its partitions have leaders; a thousand partitions take a while."""


@dataclass(frozen=True)
class Topic:
    """A topic at one moment. A `read_committed` consumer sees the offsets [first, end) of a partition."""

    name: str
    partitions: int
    cleanup_policy: str | None = "compact"
    """None if the user lacks the right to read the topic's configuration."""
    first: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)
    exists: bool = True
    operations: frozenset[str] | None = None
    """What the user is authorized to do; None if the cluster does not report it."""
    id: str = ""
    """Kafka's topic id: a topic that was deleted and created again has another."""
    written: Mapping[int, int] = field(default_factory=dict)
    """The high watermarks, which include open transactions, as they were before `end`; empty if nobody asked for them."""
    replicas: int = 0
    """Of the partition that has the fewest."""
    config: Mapping[str, str] = field(default_factory=dict, compare=False)
    """With the cluster's defaults; empty if the user lacks the right to read it."""

    @property
    def is_empty(self) -> bool:
        return all(self.first[p] >= self.end[p] for p in self.end)


@dataclass(frozen=True)
class Statistics:
    """What the cluster reports about a topic without reading its records."""

    partitions: int
    records: int
    """Offsets between first and end: an upper bound, because compaction leaves gaps."""
    bytes: int | None
    """The size of all replicas; None if the cluster does not report it."""
    cleanup_policy: str | None
    """None if the user lacks the right to read the topic's configuration."""
    retention_millis: int
    newest_millis: int | None
    """Timestamp of the newest record; None if the topic is empty."""
    end: Mapping[int, int]


@dataclass(frozen=True)
class TopicSettings:
    """What a model asks for: its own options over the profile's `topic_defaults`. None is the broker's default."""

    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    compacted: bool = True
    """True for tables. A topic of events has the broker's retention."""


def check_name(name: str) -> None:
    """Refuse a topic name that Kafka does not allow."""
    if not TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise UpsertKafkaError(
            f"topic '{name}' is not a name that Kafka allows: letters, digits, '.', '_' and '-', at most 249 characters. "
            "Set the option topic."
        )


def names(admin: KafkaAdminClient) -> list[str]:
    """The topics of the cluster, without Kafka's internal topics."""
    return sorted(topic["name"] for topic in admin.describe_topics() if not topic["is_internal"])


def describe(admin: KafkaAdminClient, name: str, isolation_level: int = READ_COMMITTED) -> Topic | None:
    """The topic as it is now, or None if it does not exist."""
    [found] = admin.describe_topics([name])
    error = for_code(found["error_code"])
    if error is UnknownTopicOrPartitionError:
        return None
    if error is TopicAuthorizationFailedError:
        raise MissingRightError("DESCRIBE", "topic", name)
    if found["error_code"]:
        raise UpsertKafkaError(f"topic '{name}' could not be described: {kafka_error_text(error())}")
    partitions = [p["partition_index"] for p in found["partitions"]]
    earliest = {TopicPartition(name, p): OffsetSpec.EARLIEST for p in partitions}
    first = _offsets(admin, earliest, timeout_ms=LEADER_TIMEOUT_MS)
    settings = config(admin, name)
    return Topic(
        name=name,
        partitions=len(partitions),
        cleanup_policy=settings.get("cleanup.policy"),
        first={p.partition: found.offset for p, found in first.items()},
        end=ends(admin, name, partitions, isolation_level),
        operations=frozenset(found.get("authorized_operations") or ()) or None,
        id=_topic_id(found.get("topic_id")),
        replicas=min((len(p["replica_nodes"]) for p in found["partitions"]), default=0),
        config=settings,
    )


def ids(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, str]:
    """The ids of those topics that exist and that the user may describe, in one request; empty texts from brokers before 2.8."""
    wanted = sorted(set(names))
    found = admin.describe_topics(wanted) if wanted else []
    return {topic["name"]: _topic_id(topic.get("topic_id")) for topic in found if not topic["error_code"]}


def check_rights(topic: Topic, *operations: str) -> None:
    """Raise MissingRightError for the first operation that the user lacks, before anything is tried."""
    for operation in operations:
        if topic.operations is not None and operation not in topic.operations:
            raise MissingRightError(operation, "topic", topic.name)


def ends(admin: KafkaAdminClient, name: str, partitions: Iterable[int], isolation_level: int = READ_COMMITTED) -> dict[int, int]:
    """The end offset of each partition for a consumer with this isolation level."""
    latest = {TopicPartition(name, p): OffsetSpec.LATEST for p in partitions}
    found = _offsets(admin, latest, isolation_level)
    return {p.partition: found[p].offset for p in latest}


def _offsets(
    admin: KafkaAdminClient,
    asked: Mapping[TopicPartition, OffsetSpec | int],
    isolation_level: int = READ_UNCOMMITTED,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, Any]:
    """Ask for offsets, again while a new leader does not know its high watermark yet (KIP-207): the client raises that error."""
    until = time.monotonic() + NEW_LEADER_SECONDS
    while True:
        try:
            return dict(admin.list_partition_offsets(dict(asked), isolation_level, timeout_ms))
        except OffsetNotAvailableError:
            if time.monotonic() > until:
                raise
            time.sleep(NEW_LEADER_PAUSE)


def offsets_at(admin: KafkaAdminClient, topic: Topic, millis: int) -> dict[int, int]:
    """The first offset of each partition whose timestamp is at least `millis`; the end offset if there is none."""
    found = _offsets(admin, {TopicPartition(topic.name, p): millis for p in topic.end})
    end = topic.end
    return {p.partition: at.offset if 0 <= at.offset < end[p.partition] else end[p.partition] for p, at in found.items()}


def config(admin: KafkaAdminClient, name: str) -> dict[str, str]:
    """The topic's configuration with the cluster's defaults; empty if the user lacks the right to read it."""
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)], config_filter="all")
    return {key: entry["value"] for key, entry in found["topic"][name].items()}


def lacks_replicas(admin: KafkaAdminClient, name: str) -> bool:
    """Whether a partition has fewer in-sync replicas than `min.insync.replicas`."""
    [found] = admin.describe_topics([name])
    needed = int(config(admin, name).get("min.insync.replicas", 1))
    return any(len(partition["isr_nodes"]) < needed for partition in found["partitions"])


def largest_message(admin: KafkaAdminClient, name: str, settings: TopicSettings | None = None) -> int:
    """The topic's `max.message.bytes`; Kafka's default if the user lacks the right to read it.

    Args:
        settings: of a topic that does not exist yet.
    """
    if settings is None:
        allowed = config(admin, name).get("max.message.bytes")
    else:
        allowed = settings.config.get("max.message.bytes") or brokers.config(admin).get("message.max.bytes")
    return int(allowed or DEFAULT_MAX_MESSAGE_BYTES)


def create(admin: KafkaAdminClient, name: str, settings: TopicSettings) -> Topic:
    """Create a topic. A topic that another process created meanwhile is used as it is."""
    topic, _ = create_unless_exists(admin, name, settings)
    return topic


def create_unless_exists(admin: KafkaAdminClient, name: str, settings: TopicSettings) -> tuple[Topic, bool]:
    """Create a topic.

    Returns:
        The topic, and whether this call created it.
    """
    is_created = True
    spec: dict[str, Any] = {
        "num_partitions": settings.partitions if settings.partitions is not None else -1,
        "replication_factor": settings.replication_factor if settings.replication_factor is not None else -1,
        "configs": {**({"cleanup.policy": "compact"} if settings.compacted else {}), **settings.config},
    }
    try:
        admin.create_topics({name: spec}, wait_for_metadata=True)
    except TopicAlreadyExistsError:
        is_created = False
        admin.wait_for_topics([name])
    except (TopicAuthorizationFailedError, ClusterAuthorizationFailedError):
        raise MissingRightError("CREATE", "topic", name) from None
    except InvalidReplicationFactorError as error:
        number = len(describe_cluster(admin)["brokers"])
        raise UpsertKafkaError(
            f"topic '{name}' could not be created: replication_factor is {settings.replication_factor or 'the broker default'}, "
            f"and the cluster has {count_of(number, 'broker')}. Set replication_factor to at most {number}."
        ) from error
    except KafkaError as error:
        if isinstance(error, InvalidConfigurationError) and (refused := _refused_settings(admin, name, spec["configs"])):
            raise UpsertKafkaError(
                f"topic '{name}' could not be created: the cluster does not accept {', '.join(refused)}. Correct "
                "topic_config, or topic_defaults of the profile."
            ) from error
        raise UpsertKafkaError(
            f"topic '{name}' could not be created with partitions={settings.partitions or 'broker default'}, "
            f"replication_factor={settings.replication_factor or 'broker default'}, topic_config={dict(settings.config)}: "
            f"{kafka_error_text(error)}"
        ) from error
    # Another broker than the one that was asked last may learn of the topic a bit later.
    until = time.monotonic() + NEW_TOPIC_SECONDS
    while (topic := describe(admin, name)) is None and time.monotonic() < until:
        time.sleep(NEW_LEADER_PAUSE)
    if topic is None:
        raise UpsertKafkaError(f"topic '{name}' was created and is gone again. Check whether another process deletes topics.")
    return topic, is_created


def _refused_settings(admin: KafkaAdminClient, name: str, configs: Mapping[str, str]) -> list[str]:
    """The settings that the cluster refuses one by one: its answer to all of them does not tell which one is wrong."""
    found = []
    for setting, value in configs.items():
        spec = {"num_partitions": -1, "replication_factor": -1, "configs": {setting: value}}
        try:
            admin.create_topics({name: spec}, validate_only=True)
        except InvalidConfigurationError:
            found.append(f"{setting}={value}")
    return found


def delete(admin: KafkaAdminClient, name: str) -> bool:
    """Delete the topic with its records.

    Returns:
        Whether the topic existed.
    """
    try:
        admin.delete_topics([name])
    except UnknownTopicOrPartitionError:
        return False
    except KafkaError as error:
        raise UpsertKafkaError(f"topic '{name}' could not be deleted: {kafka_error_text(error)}") from error
    return True


def differences(topic: Topic, settings: TopicSettings) -> list[str]:
    """One warning for each setting in which an existing topic differs from what the model asks for."""
    warnings = []
    if settings.compacted and topic.cleanup_policy is not None and "compact" not in topic.cleanup_policy:
        warnings.append(
            f"topic '{topic.name}' has cleanup.policy={topic.cleanup_policy}: it is not compacted, so old values stay "
            "and retention may delete live keys. The topic is not altered."
        )
    if settings.partitions is not None and settings.partitions != topic.partitions:
        noun = "partition" if topic.partitions == 1 else "partitions"
        warnings.append(
            f"topic '{topic.name}' has {topic.partitions} {noun}, the model asks for {settings.partitions}. "
            "The topic is not altered."
        )
    return warnings


def is_another(admin: KafkaAdminClient, topic: Topic) -> bool:
    """Whether the topic was deleted, created again, or got more partitions since `topic` was described."""
    [found] = admin.describe_topics([topic.name])
    return _topic_id(found.get("topic_id")) != topic.id or len(found["partitions"]) != topic.partitions


def _topic_id(found: object) -> str:
    """The id as text; empty from brokers before 2.8, which have no topic ids."""
    text = "" if found is None else str(found)
    return "" if text == NO_TOPIC_ID else text


def moved(admin: KafkaAdminClient, topic: Topic) -> list[str]:
    """A warning if the end offsets differ from those in `topic`: another writer is active."""
    now = ends(admin, topic.name, topic.end)
    changed = sorted(p for p in topic.end if now[p] != topic.end[p])
    if not changed:
        return []
    where = ", ".join(map(str, changed))
    warning = (
        f"topic '{topic.name}' moved while this run compared with it (partitions {where}): another run or producer wrote to it, "
        "and the last write of a key wins. Run again when it has finished."
    )
    return [warning]


def moved_partitions(admin: KafkaAdminClient, topic: Topic) -> list[int]:
    """The partitions whose high watermark is not the one in `topic`.

    No transaction was open before that one, see `open_transactions`. So one that is open now has moved the high watermark.
    """
    if not topic.written:
        return []
    now = ends(admin, topic.name, topic.written, READ_UNCOMMITTED)
    return sorted(p for p, offset in topic.written.items() if now[p] != offset)


def statistics(admin: KafkaAdminClient, name: str) -> Statistics | None:
    """The topic's statistics, or None if it does not exist."""
    topic = describe(admin, name)
    if topic is None:
        return None
    newest = _offsets(admin, {TopicPartition(name, p): OffsetSpec.MAX_TIMESTAMP for p in topic.end})
    millis = [found.timestamp for found in newest.values() if found.timestamp >= 0]
    return Statistics(
        partitions=topic.partitions,
        records=sum(topic.end[p] - topic.first[p] for p in topic.end),
        bytes=_size(admin, topic),
        cleanup_policy=topic.cleanup_policy,
        retention_millis=int(config(admin, name).get("retention.ms", -1)),
        newest_millis=max(millis, default=None),
        end=topic.end,
    )


def _size(admin: KafkaAdminClient, topic: Topic) -> int | None:
    try:
        found = admin.describe_log_dirs({topic.name: sorted(topic.end)})
    except KafkaError:
        return None
    topics = [t for broker in found for log_dir in broker["log_dirs"] for t in log_dir["topics"] if t["name"] == topic.name]
    return sum(partition["partition_size"] for t in topics for partition in t["partitions"])
