"""Topics are described and created, and existing topics are never altered."""

from __future__ import annotations

import pytest
from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import TopicSettings
from tests.tables import Table


def test_existing_topic_with_other_settings_gives_warnings_and_is_not_altered(
    table: Table, broker: str, warnings: list[str]
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker)
    admin.create_topics({table.topic: {"num_partitions": 3, "replication_factor": 1, "configs": {"cleanup.policy": "delete"}}})
    admin.close()
    assert table.publish([(1, "ann")]).inserted == 1
    assert len(warnings) == 2
    assert "has cleanup.policy=delete: it is not compacted" in warnings[0]
    assert "has 3 partitions, the model asks for 2. The topic is not altered." in warnings[1]
    with KafkaSettings(broker).admin() as again:
        described = topics.describe(again, table.topic)
    assert described is not None
    assert (described.partitions, described.cleanup_policy) == (3, "delete")


def test_refused_topic_is_reported_with_the_reason(broker: str, topic_name: str) -> None:
    with KafkaSettings(broker).admin() as admin:
        with pytest.raises(
            UpsertKafkaError, match=r"replication_factor is 5, and the cluster has 1 broker\. Set .* to at most 1"
        ):
            topics.create(admin, topic_name, TopicSettings(replication_factor=5))
        with pytest.raises(UpsertKafkaError, match=r"could not be created with .*'retention.ms': 'x'.*InvalidConfig"):
            topics.create(admin, topic_name, TopicSettings(config={"retention.ms": "x"}))
        assert topics.describe(admin, topic_name) is None


def test_topic_that_another_process_created_is_used_as_it_is(broker: str, topic_name: str) -> None:
    with KafkaSettings(broker).admin() as admin:
        first = topics.create(admin, topic_name, TopicSettings(partitions=2))
        assert topics.create(admin, topic_name, TopicSettings(partitions=5)) == first
