"""Least privilege: a model needs exactly the rights that docs/security.md lists, and an error names a missing one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from kafka.admin import ResourceType
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.credentials import DEFAULT_STATE_TOPIC
from dbt.adapters.upsert_kafka.errors import GuardError, UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import groups, topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.source import slices
from dbt.adapters.upsert_kafka.spark.handle import error_line
from dbt.adapters.upsert_kafka.state.store import StateSettings
from tests.secured import SecuredCluster, export
from tests.services import end_offsets
from tests.tables import Rows, Table

TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
EXACTLY_ONCE = {"sink_delivery_guarantee": "exactly-once"}
Rights = Mapping[tuple[ResourceType, str], str]


class SecuredTable(Table):
    """A model with its own Kafka user, which has no rights at first."""

    def __init__(self, spark: SparkSession, cluster: SecuredCluster, topic: str, schema: str) -> None:
        super().__init__(spark, cluster.admin_servers, topic, schema)
        self.cluster = cluster
        # One user per topic, so that the ACLs of other tests have no effect.
        self.user = f"user-of-{topic}"[:100]
        cluster.add_user(self.user, "s3cret")
        # Spark reuses a producer for equal settings, in which the password is only a reference.
        self.kafka = {**cluster.sasl(self.user, "s3cret", "SCRAM-SHA-256"), "client.id": self.user}
        self.secured_at = cluster.sasl_servers
        export(spark, self.kafka)
        self.allow("CREATE READ WRITE", name=DEFAULT_STATE_TOPIC)

    @property
    def settings(self) -> KafkaSettings:
        return KafkaSettings(self.cluster.sasl_servers, self.kafka)

    def allow(self, rights: str, kind: ResourceType = TOPIC, name: str | None = None) -> None:
        self.cluster.allow(self.user, {(kind, name or self.topic): rights})

    def refused(self, line: str, **config: str) -> None:
        with pytest.raises(UpsertKafkaError) as refusal:
            self.publish([(1, "a"), (2, "b")], **config)
        self.assert_reported(refusal.value, line)

    def assert_reported(self, error: UpsertKafkaError, line: str) -> None:
        message = str(error.msg)
        assert f"user '{self.user}' lacks {line}" in message
        assert "\n" not in message and "Exception" not in message and "s3cret" not in message


class TableWithoutState(SecuredTable):
    """A model whose user has no rights on the state topic."""

    def __init__(self, spark: SparkSession, cluster: SecuredCluster, topic: str, schema: str) -> None:
        super().__init__(spark, cluster, topic, schema)
        self.state_topic = f"{topic}.state"
        self.allow("CREATE READ WRITE")

    def publish(self, rows: Rows | DataFrame | str, columns: str | None = None, **config: Any) -> Any:
        return super().publish(rows, columns, state=StateSettings(self.state_topic, 1), **config)


class SecuredEvents(SecuredTable):
    materialization = "kafka"


@pytest.fixture
def model(spark: SparkSession, secured: SecuredCluster, topic_name: str, schema_name: str) -> SecuredTable:
    return SecuredTable(spark, secured, topic_name, schema_name)


def test_at_least_once_names_each_missing_right(model: SecuredTable) -> None:
    model.refused(f"DESCRIBE on topic '{model.topic}': grant it")
    model.allow("DESCRIBE")
    model.refused(f"CREATE on topic '{model.topic}'")
    model.allow("CREATE")
    # The user's rights on a new topic are known after it was created. Nothing is written to it.
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


def test_append_sink_needs_no_read_but_its_view_does(
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


@pytest.fixture
def stateless(spark: SparkSession, secured: SecuredCluster, topic_name: str, schema_name: str) -> TableWithoutState:
    return TableWithoutState(spark, secured, topic_name, schema_name)


def test_without_rights_on_the_state_topic_a_run_may_only_add(stateless: TableWithoutState) -> None:
    assert stateless.publish([(1, "a")]).inserted == 1
    assert stateless.publish([(1, "a"), (2, "b")]).inserted == 1
    before = stateless.end()
    with pytest.raises(GuardError, match=r"may not read the state topic .* would change 1 key and delete 1 key") as refusal:
        stateless.publish([(1, "c")])
    assert "Grant READ, WRITE and CREATE on the state topic" in str(refusal.value)
    assert stateless.end() == before


def test_with_read_but_not_write_owners_are_checked_and_a_warning_is_logged(
    stateless: TableWithoutState, warnings: list[str]
) -> None:
    with stateless.cluster.admin() as admin:
        topics.create(admin, stateless.state_topic, topics.TopicSettings(1, 1))
    stateless.allow("READ", name=stateless.state_topic)
    assert stateless.publish([(1, "a")]).inserted == 1
    assert [warning for warning in warnings if "may not write to the state topic" in warning]
    assert end_offsets(stateless.broker, stateless.state_topic) == {0: 0}
    other = StateSettings(stateless.state_topic, 1)
    Table.publish(stateless_owner(stateless), [(1, "a")], state=other)
    before = stateless.end()
    with pytest.raises(GuardError, match="is owned by model other"):
        stateless.publish([(1, "a"), (2, "b")])
    assert stateless.end() == before


def stateless_owner(table: TableWithoutState) -> Table:
    """Another model with all rights that publishes to the same topic."""
    other = Table(table.spark, table.broker, table.topic, f"{table.schema}_other")
    other.owner = replace(other.owner, model="other")
    return other


def test_preview_needs_no_write(model: SecuredTable) -> None:
    model.allow("READ")
    with model.cluster.admin() as admin:
        topics.create(admin, model.topic, topics.TopicSettings(partitions=1))
    assert model.publish([(1, "a")], mode="preview").inserted == 1
    assert model.records() == []


def test_source_needs_rights_on_its_topic_and_group(model: SecuredTable) -> None:
    with model.cluster.admin() as admin:
        topics.create(admin, model.topic, topics.TopicSettings(partitions=1))
    group = f"group-of-{model.topic}"
    config = {"topic": model.topic, "properties": {"group.id": group, "auto.offset.reset": "earliest"}}
    source = options.parse("kafka_source", "events", {"materialized": "kafka_source", **config})

    def assert_refused(line: str) -> None:
        with pytest.raises(UpsertKafkaError) as refusal, model.settings.admin() as admin:
            covered = slices.resolve(admin, "events", source)
            groups.commit(admin, group, covered.ends())
        model.assert_reported(refusal.value, line)

    model.allow("DESCRIBE")
    assert_refused(f"READ on topic '{model.topic}'")
    model.allow("READ")
    assert_refused(f"DESCRIBE on group '{group}'")
    model.allow("DESCRIBE", GROUP, group)
    assert_refused(f"READ on group '{group}'")
    model.allow("READ", GROUP, group)
    with model.settings.admin() as admin:
        groups.commit(admin, group, slices.resolve(admin, "events", source).ends())
