"""Topics are described and created. Existing topics are altered only with on_configuration_change='apply'."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.errors import GuardError, UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import TopicSettings
from tests.counts import counts
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
        with pytest.raises(
            UpsertKafkaError, match=r"could not be created: the cluster does not accept retention\.ms=x\. Correct topic_config"
        ):
            topics.create(admin, topic_name, TopicSettings(config={"retention.ms": "x"}))
        assert topics.describe(admin, topic_name) is None


def test_topic_that_another_process_created_is_used_as_it_is(broker: str, topic_name: str) -> None:
    with KafkaSettings(broker).admin() as admin:
        first = topics.create(admin, topic_name, TopicSettings(partitions=2))
        assert topics.create(admin, topic_name, TopicSettings(partitions=5)) == first


@pytest.mark.parametrize("choice", ["apply", "continue", "fail"])
def test_on_configuration_change(table: Table, warnings: list[str], choice: str) -> None:
    """A topic whose partitions and config are not those of the model: altered, left as it is, or refused."""
    table.publish([(number, "a") for number in range(20)])
    before, placed = table.end(), {record.key: record.partition for record in table.records()}
    table.partitions = 5
    settings: dict[str, Any] = {"on_configuration_change": choice, "topic_config": {"segment.ms": "3600000"}}
    if choice == "fail":
        with pytest.raises(GuardError, match=r"partitions is 2, the model asks for 5; segment.ms is (?s:.*)Nothing was written"):
            table.publish([(1, "b")], **settings)
        assert table.end() == before
        return
    assert counts(table.publish([(number, "b") for number in range(40)], **settings)) == (20, 20, 0, 0)
    assert not warnings
    with KafkaSettings(table.broker).admin() as admin:
        found = topics.describe(admin, table.topic)
    assert found is not None
    changed = choice == "apply"
    assert (found.partitions, found.config["segment.ms"]) == ((5, "3600000") if changed else (2, "604800000"))
    now = [(record.key, record.partition) for record in table.records()]
    assert all(placed.get(key, partition) == partition for key, partition in now), "known keys stay in their partition"
    assert len({partition for _, partition in now}) == found.partitions
    assert counts(table.publish([(number, "b") for number in range(40)], **settings)) == (0, 0, 0, 40)


def test_configuration_change_that_loses_data_is_refused(table: Table) -> None:
    table.publish([(1, "a")])
    before = table.end()
    table.partitions = 1
    with pytest.raises(GuardError, match="Kafka can't remove partitions, and a new topic would lose the records"):
        table.publish([(1, "b")], on_configuration_change="apply")
    table.partitions = 2
    with pytest.raises(GuardError, match="retention would delete records"):
        table.publish([(1, "b")], on_configuration_change="apply", topic_config={"cleanup.policy": "delete"})
    assert table.end() == before


def test_refused_alteration_refuses_the_run(table: Table) -> None:
    """kafka-python does not raise the error of a config."""
    table.publish([(1, "a")])
    before = table.end()
    with pytest.raises(UpsertKafkaError) as refused:
        table.publish([(1, "b")], on_configuration_change="apply", topic_config={"segment.ms": "an hour", "retention.ms": "-1"})
    text = refused.value.msg
    assert "could not be altered (retention.ms is 604800000, the model asks for -1; segment.ms is 604800000" in text
    assert "Invalid value an hour for configuration segment.ms" in text and "\n" not in text
    assert "Nothing was published." in text
    assert table.end() == before
    with KafkaSettings(table.broker).admin() as admin:
        found = topics.describe(admin, table.topic)
    assert found is not None and found.config["retention.ms"] == "604800000"
