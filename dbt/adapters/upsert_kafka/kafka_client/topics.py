"""A topic as the cluster knows it: describe, create, compare with what a model asks for.

The one place that talks to the admin API. Leaves to `scan` what is read from a topic, and to `sinks` what is written to it.
Never alters a topic, and deletes one only for the operation that says so.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.admin._partitions import OffsetSpec
from kafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    KafkaError,
    NoError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.structs import OffsetAndMetadata

from dbt.adapters.upsert_kafka.errors import MissingRightError, UpsertKafkaError

NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
MESSAGE_BYTES = 1024 * 1024 + 12
WAITS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
LEADERS_MS = 120_000
"""A topic just created is known before all of its partitions have leaders; a thousand of them take a while."""


@dataclass(frozen=True)
class Topic:
    """One topic at one moment: a partition's records that a committed reader sees lie in [first, end)."""

    name: str
    partitions: int
    cleanup_policy: str | None = "compact"
    """None where it may not be asked."""
    first: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)
    exists: bool = True
    operations: frozenset[str] | None = None
    """What the user may do with it; None where the cluster does not tell."""
    id: str = ""
    """Of this topic alone: one that is made again under the same name has another."""

    @property
    def is_empty(self) -> bool:
        return all(self.first[p] >= self.end[p] for p in self.end)


@dataclass(frozen=True)
class Statistics:
    """What the cluster tells of a topic without reading it."""

    partitions: int
    records: int
    """Offsets in use: an upper bound where compaction has been at work."""
    bytes: int | None
    """Of all replicas; None where the cluster does not say."""
    cleanup_policy: str | None
    """None where the topic's settings may not be asked."""
    retention_millis: int
    newest_millis: int | None
    end: Mapping[int, int]


@dataclass(frozen=True)
class Wanted:
    """What a model asks of its topic: its own options over the profile's `topic_defaults`; None leaves it to the broker."""

    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    compacted: bool = True
    """A table's topic is; events stay as long as the broker's retention says."""


def check_name(name: str) -> None:
    """Refuse a name that Kafka would refuse."""
    if not NAME.fullmatch(name) or name in (".", ".."):
        raise UpsertKafkaError(
            f"topic '{name}' is not a name that Kafka allows: letters, digits, '.', '_' and '-', at most 249; "
            "set the option topic"
        )


def names(admin: KafkaAdminClient) -> list[str]:
    """The topics of the cluster, without Kafka's own."""
    return sorted(t["name"] for t in admin.describe_topics() if not t["is_internal"])


def describe(admin: KafkaAdminClient, name: str, isolation_level: int = READ_COMMITTED) -> Topic | None:
    """The topic as it is now, or None where there is none."""
    [found] = admin.describe_topics([name])
    error = for_code(found["error_code"])
    if error is UnknownTopicOrPartitionError:
        return None
    if error is TopicAuthorizationFailedError:
        raise MissingRightError("DESCRIBE", "topic", name)
    if found["error_code"]:
        raise UpsertKafkaError(f"topic '{name}' could not be described: {error.__name__}, {error.description}")
    partitions = [p["partition_index"] for p in found["partitions"]]
    wanted = {TopicPartition(name, p): OffsetSpec.EARLIEST for p in partitions}
    first = admin.list_partition_offsets(wanted, timeout_ms=LEADERS_MS)
    return Topic(
        name=name,
        partitions=len(partitions),
        cleanup_policy=config(admin, name).get("cleanup.policy"),
        first={p.partition: found.offset for p, found in first.items()},
        end=ends(admin, name, partitions, isolation_level),
        operations=frozenset(found.get("authorized_operations") or ()) or None,
        id=str(found.get("topic_id")),
    )


def check_rights(topic: Topic, *operations: str) -> None:
    """Refuse what the user may not do with the topic, before any of it is tried."""
    for operation in operations:
        if topic.operations is not None and operation not in topic.operations:
            raise MissingRightError(operation, "topic", topic.name)


def ends(admin: KafkaAdminClient, name: str, partitions: Iterable[int], isolation_level: int = READ_COMMITTED) -> dict[int, int]:
    """Where a reader of each partition comes to the end now."""
    wanted = {TopicPartition(name, p): OffsetSpec.LATEST for p in partitions}
    found = admin.list_partition_offsets(wanted, isolation_level=isolation_level)
    return {p.partition: found[p].offset for p in wanted}


def config(admin: KafkaAdminClient, name: str) -> dict[str, str]:
    """The topic's settings, those that the cluster gives it included; none where they may not be asked."""
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)], config_filter="all")
    return {key: entry["value"] for key, entry in found["topic"][name].items()}


def lacks_replicas(admin: KafkaAdminClient, name: str) -> bool:
    """Whether a partition has fewer replicas in sync than a write with acks=all needs."""
    [found] = admin.describe_topics([name])
    needed = int(config(admin, name).get("min.insync.replicas", 1))
    return any(len(partition["isr_nodes"]) < needed for partition in found["partitions"])


def largest_message(admin: KafkaAdminClient, name: str, wanted: Wanted | None = None) -> int:
    """Bytes that the topic allows a message to have; Kafka's default where that may not be asked.

    Args:
        wanted: of a topic that is not there yet.
    """
    if wanted is None:
        allowed = config(admin, name).get("max.message.bytes")
    else:
        allowed = wanted.config.get("max.message.bytes") or broker_config(admin).get("message.max.bytes")
    return int(allowed or MESSAGE_BYTES)


def broker_config(admin: KafkaAdminClient) -> dict[str, str]:
    """The settings of one broker of the cluster; none where they may not be asked."""
    broker = str(admin.describe_cluster()["brokers"][0]["broker_id"])
    found = admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, broker)], config_filter="all")
    return {key: entry["value"] for key, entry in found["broker"][broker].items()}


def create(admin: KafkaAdminClient, name: str, wanted: Wanted) -> Topic:
    """Create a topic; one that appeared meanwhile is taken as it is."""
    spec = {
        "num_partitions": wanted.partitions if wanted.partitions is not None else -1,
        "replication_factor": wanted.replication_factor if wanted.replication_factor is not None else -1,
        "configs": {**({"cleanup.policy": "compact"} if wanted.compacted else {}), **wanted.config},
    }
    try:
        admin.create_topics({name: spec}, wait_for_metadata=True)
    except TopicAlreadyExistsError:
        admin.wait_for_topics([name])
    except (TopicAuthorizationFailedError, ClusterAuthorizationFailedError):
        raise MissingRightError("CREATE", "topic", name) from None
    except KafkaError as error:
        raise UpsertKafkaError(
            f"topic '{name}' could not be created with partitions={wanted.partitions or 'broker default'}, "
            f"replication_factor={wanted.replication_factor or 'broker default'}, topic_config={dict(wanted.config)}: "
            f"{type(error).__name__}, {error.description}"
        ) from error
    topic = describe(admin, name)
    if topic is None:
        raise UpsertKafkaError(f"topic '{name}' was created and is gone again: is something deleting it?")
    return topic


def differences(topic: Topic, wanted: Wanted) -> list[str]:
    """What an existing topic has otherwise than wanted, one warning each; the topic is left as it is."""
    warnings = []
    if wanted.compacted and topic.cleanup_policy is not None and "compact" not in topic.cleanup_policy:
        warnings.append(
            f"topic '{topic.name}' has cleanup.policy={topic.cleanup_policy}: it is not compacted, so old values stay "
            "and retention may drop live keys; left as it is"
        )
    if wanted.partitions is not None and wanted.partitions != topic.partitions:
        warnings.append(
            f"topic '{topic.name}' has {topic.partitions} partitions, the model asks for {wanted.partitions}; left as it is"
        )
    return warnings


def moved(admin: KafkaAdminClient, topic: Topic) -> list[str]:
    """Whether somebody wrote to the topic since `topic` was described, as a warning."""
    now = ends(admin, topic.name, topic.end)
    behind = sorted(p for p in topic.end if now[p] != topic.end[p])
    if not behind:
        return []
    where = ", ".join(map(str, behind))
    warning = (
        f"topic '{topic.name}' moved while this run compared with it (partitions {where}): another run or writer is at work, "
        "and the last write of a key wins; run once more when it has ended"
    )
    return [warning]


def statistics(admin: KafkaAdminClient, name: str) -> Statistics | None:
    """The topic in numbers, or None where there is none."""
    topic = describe(admin, name)
    if topic is None:
        return None
    settings = config(admin, name)
    newest = admin.list_partition_offsets({TopicPartition(name, p): OffsetSpec.MAX_TIMESTAMP for p in topic.end})
    millis = [found.timestamp for found in newest.values() if found.timestamp >= 0]
    return Statistics(
        partitions=topic.partitions,
        records=sum(topic.end[p] - topic.first[p] for p in topic.end),
        bytes=_bytes(admin, topic),
        cleanup_policy=topic.cleanup_policy,
        retention_millis=int(settings.get("retention.ms", -1)),
        newest_millis=max(millis, default=None),
        end=topic.end,
    )


def _bytes(admin: KafkaAdminClient, topic: Topic) -> int | None:
    try:
        brokers = admin.describe_log_dirs({topic.name: sorted(topic.end)})
    except KafkaError:
        return None
    found = [t for b in brokers for d in b["log_dirs"] for t in d["topics"] if t["name"] == topic.name]
    return sum(p["partition_size"] for t in found for p in t["partitions"])


def readers(admin: KafkaAdminClient, name: str) -> list[str]:
    """The consumer groups that have members on the topic now."""
    groups = [g["group_id"] for g in admin.list_groups() if g["protocol_type"] in ("consumer", "")]
    described = admin.describe_groups(groups) if groups else {}
    return sorted(g for g, found in described.items() if any(name in _assigned(m) for m in found["members"]))


def _assigned(member: Mapping[str, Any]) -> set[str]:
    """The topics that a member of a group has partitions of."""
    assignment = member.get("member_assignment") or {}
    partitions = assignment.get("assigned_partitions") or () if isinstance(assignment, Mapping) else ()
    return {p["topic"] for p in partitions}


def delete(admin: KafkaAdminClient, name: str) -> bool:
    """Delete the topic with all it holds.

    Returns:
        Whether there was one.
    """
    try:
        admin.delete_topics([name])
    except UnknownTopicOrPartitionError:
        return False
    except KafkaError as error:
        raise UpsertKafkaError(f"topic '{name}' could not be deleted: {_shown(error)}") from error
    return True


def offsets_at(admin: KafkaAdminClient, topic: Topic, millis: int) -> dict[int, int]:
    """The first offset of each partition whose record is as late as `millis`, the end where there is none."""
    found = admin.list_partition_offsets({TopicPartition(topic.name, p): millis for p in topic.end})
    ends = topic.end
    return {p.partition: at.offset if 0 <= at.offset < ends[p.partition] else ends[p.partition] for p, at in found.items()}


def committed(admin: KafkaAdminClient, group: str, topic: Topic) -> dict[int, int]:
    """The offsets that the group has committed, of partitions where it has."""
    try:
        found = _patiently(lambda: admin.list_group_offsets({group: [TopicPartition(topic.name, p) for p in topic.end]}))
    except GroupAuthorizationFailedError:
        raise MissingRightError("DESCRIBE", "group", group) from None
    except KafkaError as error:
        raise UpsertKafkaError(f"group '{group}': its offsets could not be read: {_shown(error)}") from error
    return {p.partition: at.offset for p, at in found.get(group, {}).items() if at.offset >= 0}


def commit(admin: KafkaAdminClient, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets by (topic, partition) for a group that nobody else is a member of now."""
    wanted = {TopicPartition(*where): OffsetAndMetadata(offset, "", -1) for where, offset in offsets.items()}

    def ask() -> None:
        for error in admin.alter_group_offsets(group, wanted).values():
            if error is not NoError:
                raise error

    try:
        _patiently(ask)
    except GroupAuthorizationFailedError:
        raise MissingRightError("READ", "group", group) from None
    except TopicAuthorizationFailedError:
        raise MissingRightError("READ", "topic", ", ".join(sorted({topic for topic, _ in offsets}))) from None
    except KafkaError as error:
        raise UpsertKafkaError(
            f"group '{group}': offsets could not be committed: {_shown(error)}; a source needs a group of its own"
        ) from error


def _patiently(ask: Callable[[], Any]) -> Any:
    """Ask again while the answer is one that passes: a new cluster makes its groups' coordinator on the first question."""
    for wait in WAITS:
        try:
            return ask()
        except KafkaError as error:
            if not error.retriable:
                raise
            time.sleep(wait)
    return ask()


def _shown(error: KafkaError) -> str:
    return f"{type(error).__name__}, {error.description}"
