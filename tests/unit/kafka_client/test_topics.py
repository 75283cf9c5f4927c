"""End offsets without a broker: a new leader that does not know its high watermark yet is asked again, for a limited time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import OffsetNotAvailableError

from dbt.adapters.upsert_kafka.kafka_client import topics


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
