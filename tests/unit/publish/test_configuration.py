"""on_configuration_change: which differences of a topic are applied, ignored or refused."""

from __future__ import annotations

from typing import Any

import pytest

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.kafka_client.topic_drift import drift
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic, TopicSettings
from dbt.adapters.upsert_kafka.publish import configuration

CONFIG = {"cleanup.policy": "compact", "retention.ms": "604800000", "delete.retention.ms": "86400000", "segment.ms": "1000"}


def topic(**config: str) -> Topic:
    found = {**CONFIG, **{name.replace("_", "."): value for name, value in config.items()}}
    return Topic("users", 2, found["cleanup.policy"], {0: 0, 1: 0}, {0: 5, 1: 5}, replicas=1, config=found)


def test_settings_that_the_model_does_not_mention_are_not_compared() -> None:
    assert drift(topic(), TopicSettings()) == ()
    assert drift(topic(), TopicSettings(partitions=2, replication_factor=1, config={"segment.ms": "1000"})) == ()
    assert drift(topic(cleanup_policy="compact,delete"), TopicSettings(config={"cleanup.policy": "delete, compact"})) == ()


@pytest.mark.parametrize(
    ("now", "settings"),
    [
        ({}, {"partitions": 4}),
        ({}, {"replication_factor": 3}),
        ({}, {"config": {"segment.ms": "5"}}),
        ({}, {"config": {"retention.ms": "-1"}}),
        ({}, {"config": {"delete.retention.ms": "86400001"}}),
        ({"cleanup_policy": "compact,delete"}, {"config": {"cleanup.policy": "compact"}}),
        ({"cleanup_policy": "compact,delete"}, {"config": {"segment.ms": "2000"}}),
        ({"retention_bytes": "5"}, {"config": {"retention.bytes": "-1"}}),
        ({"compression_type": "producer"}, {"config": {"compression.type": "zstd"}}),
        ({"min_insync_replicas": "1"}, {"config": {"min.insync.replicas": "2"}}),
        ({"unclean_leader_election_enable": "true"}, {"config": {"unclean.leader.election.enable": "false"}}),
        ({"max_message_bytes": "1000"}, {"config": {"max.message.bytes": "2000"}}),
    ],
)
def test_changes_that_lose_nothing_are_applied(now: dict[str, str], settings: dict[str, Any]) -> None:
    [found] = drift(topic(**now), TopicSettings(**settings))
    assert found.problem == ""
    assert configuration.refusal("users", [found], "apply") is None


@pytest.mark.parametrize(
    ("now", "settings", "problem"),
    [
        ({}, {"partitions": 1}, "can't remove partitions"),
        ({}, {"config": {"retention.ms": "1000"}}, "deleted sooner"),
        ({"retention_ms": "-1"}, {"config": {"retention.ms": "1000"}}, "deleted sooner"),
        ({}, {"config": {"delete.retention.ms": "0"}}, "deleted sooner"),
        ({}, {"config": {"cleanup.policy": "compact,delete"}}, "retention would delete"),
        ({"retention_bytes": "-1"}, {"config": {"retention.bytes": "5"}}, "lower retention.bytes means that records are deleted"),
        ({"cleanup_policy": "compact,delete"}, {"config": {"segment.ms": "5"}}, "deleted by retention, sooner"),
        ({"min_insync_replicas": "2"}, {"config": {"min.insync.replicas": "1"}}, "fewer replicas have a record"),
        ({"min_compaction_lag_ms": "9"}, {"config": {"min.compaction.lag.ms": "0"}}, "earlier values sooner"),
        ({"max_message_bytes": "9"}, {"config": {"max.message.bytes": "8"}}, "larger than it accepts"),
        (
            {"unclean_leader_election_enable": "false"},
            {"config": {"unclean.leader.election.enable": "true"}},
            "a replica that lacks records",
        ),
        *(
            ({name.replace(".", "_"): "false"}, {"config": {name: "true"}}, "not known that no record is lost")
            for name in ("remote.log.delete.on.disable", "remote.storage.enable", "a.setting.of.tomorrow")
        ),
        ({"message_timestamp_type": "CreateTime"}, {"config": {"message.timestamp.type": "LogAppendTime"}}, "not known"),
        ({"local_retention_ms": "-2"}, {"config": {"local.retention.ms": "1"}}, "not known"),
        ({"cleanup_policy": "delete"}, {}, "compaction would delete"),
    ],
)
def test_changes_that_lose_data_are_refused(now: dict[str, str], settings: dict[str, Any], problem: str) -> None:
    found = drift(topic(**now), TopicSettings(**settings))
    with pytest.raises(GuardError, match=f"(?s)on_configuration_change='apply'.*{problem}.*alter the topic yourself.*untouched"):
        configuration.check("users", "users", found, "apply")


def test_choice() -> None:
    found = drift(topic(), TopicSettings(partitions=4))
    assert "look for old keys in another partition" in found[0].meaning
    assert configuration.refusal("users", found, "continue") is None
    assert configuration.refusal("users", found, "warn") is None
    refused = configuration.refusal("users", found, "fail")
    assert refused is not None and "partitions is 2, the model asks for 4" in refused
    assert configuration.warnings(topic(), TopicSettings(partitions=4), "continue") == []
    assert len(configuration.warnings(topic(), TopicSettings(partitions=4, config={"segment.ms": "5"}), "warn")) == 2


@pytest.mark.parametrize(
    ("unrendered", "expected"), [({}, "warn"), ({"on_configuration_change": "{{ 'fail' }}"}, "fail"), ({"topic": "x"}, "warn")]
)
def test_default_of_dbt_is_no_choice(unrendered: dict[str, str], expected: str) -> None:
    rendered = "fail" if expected == "fail" else "apply"
    assert configuration.chosen({"config": {"on_configuration_change": rendered}, "unrendered_config": unrendered}) == expected
