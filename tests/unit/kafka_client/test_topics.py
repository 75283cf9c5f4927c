"""Topics without a broker: what a broker does not know yet is asked again, for a limited time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import OffsetNotAvailableError

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic, TopicSettings


def admin(failures: int) -> Any:
    """Answers OFFSET_NOT_AVAILABLE so many times."""
    left = [OffsetNotAvailableError()] * failures

    def list_partition_offsets(asked: dict[TopicPartition, Any], *_: object) -> dict[TopicPartition, Any]:
        if left:
            raise left.pop()
        return {partition: SimpleNamespace(offset=7) for partition in asked}

    return cast(KafkaAdminClient, SimpleNamespace(list_partition_offsets=list_partition_offsets))


def test_new_leader_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "NEW_LEADER_PAUSE", 0)
    assert topics.ends(admin(3), "orders", [0, 1]) == {0: 7, 1: 7}


def test_new_leader_is_not_asked_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "NEW_LEADER_SECONDS", -1)
    with pytest.raises(OffsetNotAvailableError):
        topics.ends(admin(1), "orders", [0])


@pytest.mark.parametrize("lagging", [0, 2])
def test_broker_that_does_not_know_a_new_topic_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch, lagging: int) -> None:
    answers = [None] * lagging + [Topic("orders", 1)]
    monkeypatch.setattr(topics, "describe", lambda *_: answers.pop(0))
    monkeypatch.setattr(topics, "NEW_LEADER_PAUSE", 0)
    creating = cast(KafkaAdminClient, SimpleNamespace(create_topics=lambda *_, **__: None))
    assert topics.create_unless_exists(creating, "orders", TopicSettings()) == (Topic("orders", 1), True)


def test_topic_that_is_gone_after_it_was_created_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "describe", lambda *_: None)
    monkeypatch.setattr(topics, "NEW_TOPIC_SECONDS", -1)
    creating = cast(KafkaAdminClient, SimpleNamespace(create_topics=lambda *_, **__: None))
    with pytest.raises(UpsertKafkaError, match="topic 'orders' was created and is gone again"):
        topics.create_unless_exists(creating, "orders", TopicSettings())
