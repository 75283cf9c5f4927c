"""Topics are deleted with an environment or as orphans: by the record of the run that created them, never while a group reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.drop_environment import drop_environment
from dbt.adapters.upsert_kafka.operations.environment import Environment, TopicModel
from dbt.adapters.upsert_kafka.operations.orphans import Orphans, Relations
from dbt.adapters.upsert_kafka.state.record import StateRecord
from dbt.adapters.upsert_kafka.state.store import StateSettings, StateStore
from tests.services import group_member
from tests.tables import Table


@pytest.fixture
def owned(table: Table) -> Table:
    """A topic that a run of the project `shop` created."""
    table.publish([(1, "ann")])
    return table


@pytest.fixture
def admin(table: Table) -> Iterator[KafkaAdminClient]:
    with KafkaSettings(table.broker).admin() as client:
        yield client


def orphans(table: Table, *model_topics: str, has_relation: bool = False, environment: str = "dev") -> Orphans:
    """The orphans of a project whose models have these topics."""
    models = [TopicModel(table.owner, "users", topic, KafkaSettings(table.broker)) for topic in model_topics]
    names = {(table.schema, "users")} if has_relation else set()
    return Orphans(Environment("shop", environment, StateSettings()), models, Relations(names, names))


def store(table: Table, admin: KafkaAdminClient) -> StateStore:
    return Environment("shop", "dev", StateSettings()).store(KafkaSettings(table.broker), admin)


def found(table: Table, admin: KafkaAdminClient, *model_topics: str, environment: str = "dev") -> list[StateRecord]:
    records = orphans(table, *model_topics, environment=environment).find(store(table, admin), admin)
    return [record for record in records if record.owner.schema == table.schema]


def drop(table: Table, admin: KafkaAdminClient, orphan: StateRecord, has_relation: bool = False) -> str:
    return orphans(table, has_relation=has_relation).drop(table.spark, store(table, admin), admin, orphan)


def relations(table: Table) -> set[str]:
    # SHOW TABLES lists the temporary views of the session for every schema.
    rows = table.spark.sql(f"SHOW TABLES IN `{table.schema}`").where("NOT isTemporary").collect()
    return {row["tableName"] for row in rows}


def test_topic_without_a_model_is_an_orphan_of_its_environment_only(owned: Table, admin: KafkaAdminClient) -> None:
    assert found(owned, admin, owned.topic) == []
    assert found(owned, admin, environment="prod") == []
    assert [orphan.topic for orphan in found(owned, admin)] == [owned.topic]


def test_topic_that_existed_before_the_first_run_is_not_an_orphan(table: Table, admin: KafkaAdminClient) -> None:
    topics.create(admin, table.topic, topics.TopicSettings(partitions=1))
    table.publish([(1, "ann")])
    assert found(table, admin) == []


def test_topic_that_somebody_created_again_is_not_an_orphan(owned: Table, admin: KafkaAdminClient) -> None:
    topics.delete(admin, owned.topic)
    assert found(owned, admin) == []
    topics.create(admin, owned.topic, topics.TopicSettings(partitions=1))
    assert found(owned, admin) == []


def test_drop_deletes_the_topic_its_record_and_its_relations(owned: Table, admin: KafkaAdminClient) -> None:
    [orphan] = found(owned, admin)
    assert drop(owned, admin, orphan) == f"dropped: topic '{owned.topic}'"
    assert topics.describe(admin, owned.topic) is None
    assert owned.state_record() is None
    assert relations(owned) == set()
    assert found(owned, admin) == []


def test_drop_keeps_a_view_of_the_user_with_the_name_of_the_relation(owned: Table, admin: KafkaAdminClient) -> None:
    owned.spark.sql(f"CREATE OR REPLACE VIEW `{owned.schema}`.users AS SELECT 1 AS mine")
    [orphan] = found(owned, admin)
    drop(owned, admin, orphan)
    assert relations(owned) == {"users"}


def test_model_with_a_new_topic_keeps_the_old_one_and_warns(owned: Table, admin: KafkaAdminClient, warnings: list[str]) -> None:
    old, owned.topic = owned.topic, f"{owned.topic}.new"
    owned.publish([(1, "ann")])
    [warning] = [text for text in warnings if "former topic" in text]
    assert f"Its former topic '{old}' is left as it is" in warning
    [orphan] = found(owned, admin, owned.topic)
    assert orphan.topic == old
    drop(owned, admin, orphan, has_relation=True)
    assert topics.describe(admin, old) is None
    assert owned.view() == [(1, "ann")]
    assert found(owned, admin, owned.topic) == []
    assert [orphan.topic for orphan in found(owned, admin)] == [owned.topic]


@pytest.fixture
def reader(table: Table) -> Iterator[str]:
    """A consumer group with a member that reads the topic. The topic must exist: name the fixture that publishes it first."""
    group = f"readers-of-{table.topic}"
    with group_member(table.broker, group, table.topic):
        yield group


def test_topic_that_a_group_reads_is_not_dropped(owned: Table, admin: KafkaAdminClient, reader: str) -> None:
    [orphan] = found(owned, admin)
    assert drop(owned, admin, orphan) == f"refused: topic '{owned.topic}' is read by {reader}. Stop this group first."
    assert topics.describe(admin, owned.topic) is not None
    assert owned.state_record() == orphan


def dropped(table: Table, environment: str, dry_run: bool = False) -> str:
    """What drop_environment did with the topic of this test."""
    lines = drop_environment(Environment("shop", environment, StateSettings()), KafkaSettings(table.broker), [], dry_run)
    return next((line for line in lines if f"'{table.topic}'" in line), "")


@pytest.fixture
def environment(table: Table) -> str:
    """An environment of this test only: dropping it must not delete topics of other tests."""
    table.owner = replace(table.owner, environment=table.schema)
    table.publish([(1, "ann")])
    return table.schema


def test_drop_environment_deletes_its_topic_and_record(table: Table, environment: str, admin: KafkaAdminClient) -> None:
    assert dropped(table, "another") == ""
    assert dropped(table, environment, dry_run=True) == f"would be deleted: topic '{table.topic}'"
    assert topics.describe(admin, table.topic) is not None and table.state_record() is not None
    assert dropped(table, environment) == f"deleted: topic '{table.topic}'"
    assert topics.describe(admin, table.topic) is None and table.state_record() is None


def test_drop_environment_keeps_a_topic_that_was_created_again(table: Table, environment: str, admin: KafkaAdminClient) -> None:
    topics.delete(admin, table.topic)
    topics.create(admin, table.topic, topics.TopicSettings(partitions=1))
    assert dropped(table, environment) == f"kept: topic '{table.topic}' was created again by somebody else"
    assert topics.describe(admin, table.topic) is not None
    topics.delete(admin, table.topic)
    assert dropped(table, environment) == f"forgotten: topic '{table.topic}', which does not exist any more"
    assert table.state_record() is None


def test_drop_environment_keeps_a_topic_that_a_group_reads(
    table: Table, environment: str, admin: KafkaAdminClient, reader: str
) -> None:
    assert dropped(table, environment) == f"refused: topic '{table.topic}' is read by {reader}. Stop this group first."
    assert topics.describe(admin, table.topic) is not None
