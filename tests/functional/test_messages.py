"""Messages that name what is wrong in this cluster, in this topic, in this row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.errors import GuardError, UpsertKafkaError
from tests.dbt_project import Project
from tests.services import delete_topic, list_topics
from tests.tables import Table


def test_replication_factor_that_is_too_high_names_the_number_of_brokers(table: Table) -> None:
    with pytest.raises(UpsertKafkaError, match=r"replication_factor is 3, and the cluster has 1 broker. Set .* to at most 1"):
        table.publish([(1, "ann")], replication_factor=3)
    assert table.topic not in list_topics(table.broker)


def test_topic_setting_that_does_not_exist_is_named(table: Table) -> None:
    message = r"the cluster does not accept retention\.mss=5, segment\.ms=x\. Correct topic_config"
    with pytest.raises(UpsertKafkaError, match=message):
        table.publish([(1, "ann")], topic_config={"retention.ms": "5", "retention.mss": "5", "segment.ms": "x"})
    assert table.topic not in list_topics(table.broker)


def test_row_without_a_key_is_shown(table: Table) -> None:
    with pytest.raises(GuardError, match=r'1 row has NULL in a column of unique_key \(id\), for example .*"name":"no key"'):
        table.publish([(1, "ann"), (None, "no key")])


def test_changed_key_names_the_columns(table: Table) -> None:
    table.publish([(1, "ann")])
    with pytest.raises(GuardError, match=r"the key changed from id \(int\) to name \(string\), so every key"):
        table.publish([(1, "ann")], unique_key="name")


@pytest.mark.parametrize("how", ["was deleted", "was deleted and created again"])
def test_recreated_topic_is_announced(table: Table, warnings: list[str], how: str) -> None:
    table.publish([(1, "ann")])
    delete_topic(table.broker, table.topic)
    if "created" in how:
        admin = KafkaAdminClient(bootstrap_servers=table.broker)
        admin.create_topics({table.topic: {"num_partitions": 2}}, wait_for_metadata=True)
        admin.close()
    assert table.publish([(1, "ann")]).inserted == 1
    recreated, *drift = warnings
    assert f"topic '{table.topic}' {how} since the last run" in recreated
    assert all("cleanup.policy" in warning for warning in drift)


@pytest.mark.nightly
def test_debug_shows_what_is_set_and_fails_for_a_dead_registry(dbt_project: Callable[..., Project]) -> None:
    project = dbt_project({}, schema_registry={"url": "http://127.0.0.1:9"})
    dead = project.run("debug", new_process=True)
    assert dead.exit_code == 1
    assert "Schema registry http://127.0.0.1:9 did not answer" in dead.output
    assert "State topic: 'dbt-upsert-kafka.state' can be read and written" in dead.output
    assert "Session time zone: UTC" in dead.output and "Java: " in dead.output and "None" not in dead.output
    assert not (project.folder / "artifacts").exists(), "Spark's empty folder is deleted"


def test_delta_names_the_line_of_the_profile(dbt_project: Callable[..., Project]) -> None:
    project = dbt_project(
        {
            "models/orders.sql": "select 1 as id",
            "models/merged.sql": "{{ config(materialized='incremental', unique_key='id') }} select 1 as id",
            "models/lake.sql": "{{ config(materialized='table', file_format='delta') }} select 1 as id",
            "snapshots/history.yml": "snapshots: [{name: history, relation: ref('orders'), "
            "config: {unique_key: id, strategy: check, check_cols: all}}]",
        }
    )
    built = project.run("build")
    assert built.exit_code == 1
    for name in ("merged", "lake", "history"):
        assert "Add the line `file_format: delta` to the target in profiles.yml." in built.message(name)
    assert "in macro" not in built.output
