"""Topics as they are: described, created once, warned about, never altered."""

from __future__ import annotations

import pytest
from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka import publish, topics
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.topics import Wanted
from tests.tables import Table


def test_a_topic_made_by_others_is_warned_about_and_left_alone(
    table: Table, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker)
    admin.create_topics({table.topic: {"num_partitions": 3, "replication_factor": 1, "configs": {"cleanup.policy": "delete"}}})
    admin.close()
    warnings: list[str] = []
    monkeypatch.setattr(publish.logger, "warning", warnings.append)
    assert table.publish([(1, "ann")]).inserted == 1
    assert len(warnings) == 2
    assert "has cleanup.policy=delete: it is not compacted" in warnings[0]
    assert "has 3 partitions, the model asks for 2; left as it is" in warnings[1]
    with KafkaSettings(broker).admin() as again:
        described = topics.describe(again, table.topic)
    assert described is not None
    assert (described.partitions, described.cleanup_policy) == (3, "delete")


def test_a_topic_that_the_cluster_refuses_says_why(broker: str, topic_name: str) -> None:
    with KafkaSettings(broker).admin() as admin:
        with pytest.raises(UpsertKafkaError, match=r"could not be created with .*replication_factor=5.*InvalidReplicationFactor"):
            topics.create(admin, topic_name, Wanted(replication_factor=5))
        assert topics.describe(admin, topic_name) is None


def test_a_topic_that_appears_meanwhile_is_taken_as_it_is(broker: str, topic_name: str) -> None:
    with KafkaSettings(broker).admin() as admin:
        first = topics.create(admin, topic_name, Wanted(partitions=2))
        assert topics.create(admin, topic_name, Wanted(partitions=5)) == first
