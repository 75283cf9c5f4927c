"""Consumer groups: which groups read a topic, and the offsets that a group has committed.

Leaves to `source` which offsets a run reads and commits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
from kafka.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    NoError,
    TopicAuthorizationFailedError,
    UnstableOffsetCommitError,
)

from dbt.adapters.upsert_kafka.errors import MissingRightError, UpsertKafkaError, kafka_error_text
from dbt.adapters.upsert_kafka.kafka_client.internals import stable_group_offsets

RETRY_SECONDS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
STABLE_SECONDS = 3.0
"""How long to wait for a transaction that commits offsets of the group. One that is being committed takes milliseconds. One that
a killed run left open stays open until the next run of its model, and counts as aborted."""
NO_MEMBERS = ("Empty", "Dead")

Partition = tuple[str, int]
"""Topic and partition."""


def readers(admin: KafkaAdminClient, topic: str) -> list[str]:
    """The consumer groups that have a member with a partition of the topic now."""
    groups = [group["group_id"] for group in admin.list_groups() if group["protocol_type"] in ("consumer", "")]
    described = admin.describe_groups(groups) if groups else {}
    return sorted(group for group, found in described.items() if any(topic in _assigned(m) for m in found["members"]))


def has_members(admin: KafkaAdminClient, group: str) -> bool:
    """Whether consumers are members of the group now. A group that does not exist has none."""
    try:
        # Describing a group shows no members of Kafka's newer group protocol. Listing groups shows the state of both kinds.
        state = next((g.get("group_state") for g in admin.list_groups() if g["group_id"] == group), NO_MEMBERS[0])
        # Brokers before Kafka 2.6 list groups without their state.
        return (state or admin.describe_groups([group])[group]["group_state"]) not in NO_MEMBERS
    except GroupAuthorizationFailedError:
        raise MissingRightError("DESCRIBE", "group", group) from None


def committed(admin: KafkaAdminClient, group: str, partitions: Iterable[Partition]) -> dict[Partition, OffsetAndMetadata]:
    """The group's committed offsets, without partitions that have none."""
    asked = [TopicPartition(*partition) for partition in partitions]
    try:
        found = _stable_offsets(admin, group, asked) if asked else {}
    except GroupAuthorizationFailedError:
        raise MissingRightError("DESCRIBE", "group", group) from None
    except KafkaError as error:
        raise UpsertKafkaError(f"group '{group}': its offsets could not be read: {kafka_error_text(error)}") from error
    return {(p.topic, p.partition): committed for p, committed in found.items() if committed.offset >= 0}


def commit(admin: KafkaAdminClient, group: str, offsets: Mapping[Partition, int], metadata: str = "") -> None:
    """Commit offsets. Kafka refuses this for a group that has members now.

    Args:
        metadata: a text that Kafka stores with each offset.
    """
    wanted = {TopicPartition(*where): OffsetAndMetadata(offset, metadata, -1) for where, offset in offsets.items()}

    def alter_offsets() -> None:
        for error in admin.alter_group_offsets(group, wanted).values():
            if error is not NoError:
                raise error

    try:
        _with_retries(alter_offsets)
    except GroupAuthorizationFailedError:
        raise MissingRightError("READ", "group", group) from None
    except TopicAuthorizationFailedError:
        raise MissingRightError("READ", "topic", ", ".join(sorted({topic for topic, _ in offsets}))) from None
    except KafkaError as error:
        raise UpsertKafkaError(
            f"group '{group}': offsets could not be committed: {kafka_error_text(error)}. "
            "Use a group.id that no other consumer uses."
        ) from error


def _stable_offsets(
    admin: KafkaAdminClient, group: str, partitions: list[TopicPartition]
) -> Mapping[TopicPartition, OffsetAndMetadata]:
    until = time.monotonic() + STABLE_SECONDS
    while time.monotonic() < until:
        try:
            return _with_retries(lambda: stable_group_offsets(admin, group, partitions), unless=UnstableOffsetCommitError)
        except UnstableOffsetCommitError:
            time.sleep(RETRY_SECONDS[0])
    return _with_retries(lambda: admin.list_group_offsets({group: partitions}))[group]


def _assigned(member: Mapping[str, Any]) -> set[str]:
    """The topics of which a group member has partitions."""
    assignment = member.get("member_assignment") or {}
    partitions = assignment.get("assigned_partitions") or () if isinstance(assignment, Mapping) else ()
    return {p["topic"] for p in partitions}


def _with_retries(request: Callable[[], Any], unless: type[KafkaError] | None = None) -> Any:
    """Repeat a request after retriable errors: a new cluster elects the group coordinator after the first request.

    Args:
        unless: an error after which the request is not repeated.
    """
    for seconds in RETRY_SECONDS:
        try:
            return request()
        except KafkaError as error:
            if not error.retriable or (unless is not None and isinstance(error, unless)):
                raise
            time.sleep(seconds)
    return request()
