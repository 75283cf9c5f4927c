"""The offsets of a consumer group in a transaction: they are committed together with the records, or not at all.

Leaves to `protocol` the connections, and to the caller whether the offsets may be committed.
"""

from __future__ import annotations

from typing import Any

from kafka import errors

from dbt.adapters.upsert_kafka.errors import MissingRightError
from dbt.adapters.upsert_kafka.kafka_client.internals import TxnOffsetCommitRequest
from dbt.adapters.upsert_kafka.sinks import GroupCommit
from dbt.adapters.upsert_kafka.sinks.protocol import GROUP, Client
from dbt.adapters.upsert_kafka.sinks.record_batch import Producer

_Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
_Partition = _Topic.TxnOffsetCommitRequestPartition


def commit_offsets(client: Client, producer: Producer, commit: GroupCommit, user: str) -> None:
    """Add the group to the transaction, and its offsets. They count once the transaction is committed.

    Kafka accepts this also for a group with members, whose consumers would not notice. The caller checks that it has none.

    Args:
        user: for messages.

    Raises:
        MissingRightError: on the group, or on a topic of the source.
        KafkaError: other errors, as for every request of a transaction.
    """
    transaction: dict[str, Any] = {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "group_id": commit.group,
    }
    # Newer versions of both requests belong to transaction.version 2, in which TxnOffsetCommit adds the group by itself and
    # EndTxn changes the epoch. Every broker accepts these, and EndTxn of the same age leaves the epoch as it is.
    try:
        client.add_group(producer, commit.group)
        client.ask_coordinator(
            commit.group,
            lambda: TxnOffsetCommitRequest(**transaction, topics=_topics(commit), max_version=2),
            lambda answer: next((p.error_code for t in answer.topics for p in t.partitions if p.error_code), 0),
            key_type=GROUP,
        )
    except errors.GroupAuthorizationFailedError:
        raise MissingRightError("READ", "group", commit.group, user) from None
    except errors.TopicAuthorizationFailedError:
        read = ", ".join(sorted({topic for topic, _ in commit.offsets}))
        raise MissingRightError("READ", "topic", read, user) from None


def _topics(commit: GroupCommit) -> list[Any]:
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), offset in commit.offsets.items():
        by_topic.setdefault(topic, []).append(
            _Partition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=-1,
                committed_metadata=commit.metadata,
            )
        )
    return [_Topic(name=topic, partitions=partitions) for topic, partitions in by_topic.items()]
