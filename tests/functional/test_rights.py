"""Least privilege: each model runs with exactly the rights that docs/security.md lists, and says which one is missing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from kafka.admin import ResourceType
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import options, slices, topics
from dbt.adapters.upsert_kafka.connections import error_line
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from tests.secured import SecuredCluster, export
from tests.tables import Table

TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
EXACTLY_ONCE = {"sink_delivery_guarantee": "exactly-once"}
Rights = Mapping[tuple[ResourceType, str], str]


class SecuredTable(Table):
    """A model that reaches its broker as a user of its own, who may do nothing yet."""

    def __init__(self, spark: SparkSession, cluster: SecuredCluster, topic: str, schema: str) -> None:
        super().__init__(spark, cluster.admin_servers, topic, schema)
        self.cluster = cluster
        # A user for each topic, so that no rule of another test helps.
        self.user = f"user-of-{topic}"[:100]
        cluster.add_user(self.user, "s3cret")
        # Spark keeps producers for who has the same settings, and the password is none of them.
        self.kafka = {**cluster.sasl(self.user, "s3cret", "SCRAM-SHA-256"), "client.id": self.user}
        self.secured_at = cluster.sasl_servers
        export(spark, self.kafka)

    @property
    def settings(self) -> KafkaSettings:
        return KafkaSettings(self.cluster.sasl_servers, self.kafka)

    def allow(self, rights: str, kind: ResourceType = TOPIC, name: str | None = None) -> None:
        self.cluster.allow(self.user, {(kind, name or self.topic): rights})

    def refused(self, line: str, **config: str) -> None:
        with pytest.raises(UpsertKafkaError) as refusal:
            self.publish([(1, "a"), (2, "b")], **config)
        self.is_told(refusal.value, line)

    def is_told(self, error: UpsertKafkaError, line: str) -> None:
        told = str(error.msg)
        assert f"user '{self.user}' lacks {line}" in told
        assert "\n" not in told and "Exception" not in told and "s3cret" not in told


class SecuredEvents(SecuredTable):
    materialization = "kafka"


@pytest.fixture
def model(spark: SparkSession, secured: SecuredCluster, topic_name: str, schema_name: str) -> SecuredTable:
    return SecuredTable(spark, secured, topic_name, schema_name)


def test_at_least_once_with_each_right_missing_and_with_all(model: SecuredTable) -> None:
    model.refused(f"DESCRIBE on topic '{model.topic}': grant it")
    model.allow("DESCRIBE")
    model.refused(f"CREATE on topic '{model.topic}'")
    model.allow("CREATE")
    # A new topic is created before it is known what may be done with it, and nothing is written to it.
    model.refused(f"READ on topic '{model.topic}'")
    model.refused(f"READ on topic '{model.topic}'")
    model.allow("READ")
    model.refused(f"WRITE on topic '{model.topic}'")
    assert model.records() == []
    model.allow("WRITE")
    assert model.publish([(1, "a"), (2, "b")]).inserted == 2
    assert model.publish([(1, "a"), (2, "c")]).updated == 1
    assert model.view() == [(1, "a"), (2, "c")]


def test_exactly_once_needs_its_transactional_id_as_well(model: SecuredTable) -> None:
    model.allow("CREATE READ WRITE")
    name = f"dbt-upsert-kafka.{model.topic}"
    model.refused(f"WRITE on transactional id '{name}': grant it. Nothing was written.", **EXACTLY_ONCE)
    model.refused(f"WRITE on transactional id '{name}'", **EXACTLY_ONCE)
    assert model.records() == []
    model.allow("WRITE", TRANSACTION, name)
    assert model.publish([(1, "a"), (2, "b")], **EXACTLY_ONCE).inserted == 2
    assert model.publish([(1, "a"), (2, "c")], **EXACTLY_ONCE).updated == 1
    assert model.view() == [(1, "a"), (2, "c")]


def test_an_append_sink_need_not_read_but_who_reads_its_view_must(
    spark: SparkSession, secured: SecuredCluster, topic_name: str, schema_name: str
) -> None:
    events = SecuredEvents(spark, secured, topic_name, schema_name)
    events.allow("CREATE DESCRIBE")
    events.refused(f"WRITE on topic '{events.topic}'")
    events.allow("WRITE")
    assert events.publish([(1, "a"), (1, "a")]).appended == 2
    assert len(events.records()) == 2
    with pytest.raises(Exception, match="TopicAuthorizationException") as refusal:
        events.view()
    assert error_line(refusal.value) == f"this user lacks READ on topic '{events.topic}': grant it"


def test_a_dry_run_need_not_write(model: SecuredTable) -> None:
    model.allow("READ")
    with model.cluster.admin() as admin:
        topics.create(admin, model.topic, topics.Wanted(partitions=1))
    assert model.publish([(1, "a")], mode="preview").inserted == 1
    assert model.records() == []


def test_a_source_reads_its_topic_and_a_group_of_its_own(model: SecuredTable) -> None:
    with model.cluster.admin() as admin:
        topics.create(admin, model.topic, topics.Wanted(partitions=1))
    group = f"group-of-{model.topic}"
    config = {"topic": model.topic, "properties": {"group.id": group, "auto.offset.reset": "earliest"}}
    source = options.parse("kafka_source", "events", {"materialized": "kafka_source", **config})

    def resolved(line: str) -> None:
        with pytest.raises(UpsertKafkaError) as refusal, model.settings.admin() as admin:
            covered = slices.resolve(admin, "events", source)
            topics.commit(admin, group, covered.ends())
        model.is_told(refusal.value, line)

    model.allow("DESCRIBE")
    resolved(f"READ on topic '{model.topic}'")
    model.allow("READ")
    resolved(f"DESCRIBE on group '{group}'")
    model.allow("DESCRIBE", GROUP, group)
    resolved(f"READ on group '{group}'")
    model.allow("READ", GROUP, group)
    with model.settings.admin() as admin:
        topics.commit(admin, group, slices.resolve(admin, "events", source).ends())
