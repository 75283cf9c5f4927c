"""The tests of a command read a topic once, and find what reading it again would find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from dbt.adapters.contracts.relation import RelationType

from dbt.adapters.upsert_kafka.catalog.shared_reads import ReadTopic, SharedReads
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from tests.dbt_project import Project
from tests.faults.proxy import FETCH, Proxy, proxied_cluster
from tests.tables import Table, json_key, json_value

ROWS = 20_000
MODEL = f"""{{{{ config(materialized='upsert_kafka', unique_key='id') }}}}
SELECT id, concat('name of ', id, ' ', sha(CAST(id AS STRING))) AS name FROM range({ROWS})"""
TESTS = """
models:
  - name: users
    columns:
      - name: id
        data_tests: [unique, not_null]
      - name: name
        data_tests: [unique, not_null]
"""
# One that fails: `users` is also the alias of the relation. One that mentions the relation in a literal.
SINGULAR = {
    "tests/has_no_user_7.sql": "SELECT users.id FROM {{ ref('users') }} WHERE users.id = 7",
    "tests/is_named.sql": "SELECT * FROM {{ ref('users') }} AS u WHERE u.name = '{{ ref('users') }}'",
}


@pytest.fixture
def shared() -> Iterator[SharedReads]:
    reads = SharedReads()
    yield reads
    reads.close()


def topic_of(table: Table, *tests: str, columns: frozenset[str] | None = None) -> ReadTopic:
    def position() -> Topic | None:
        with KafkaSettings(table.broker).admin() as admin:
            return topics.describe(admin, table.topic)

    return ReadTopic(table.relation, frozenset(tests), position, columns)


def stored_rdds(table: Table) -> set[int]:
    return set(table.spark.sparkContext._jsc.getPersistentRDDs())


def test_topic_that_changed_is_read_again(table: Table, shared: SharedReads) -> None:
    table.publish([(1, "ann"), (2, "bob")])
    before = stored_rdds(table)
    select = f"SELECT count(*), max(users.name) FROM {table.relation}"
    topic = topic_of(table, "first", "second")
    sql = shared.sql_of(table.spark, select, [topic])
    assert sql == "SELECT count(*), max(users.name) FROM global_temp.`users`"
    assert tuple(table.spark.sql(sql).collect()[0]) == (2, "bob")
    table.write_by_hand((json_key(3), json_value((3, "cem")), 0), (json_key(1), None, 1), (json_key(1), None, 0))
    other_session = table.spark.newSession()
    again = shared.sql_of(other_session, select, [topic])
    assert tuple(other_session.sql(again).collect()[0]) == (2, "cem")
    shared.end("first")
    assert table.spark.catalog.tableExists("global_temp.users")
    shared.end("second")
    assert not table.spark.catalog.tableExists("global_temp.users")
    assert stored_rdds(table) <= before, "rows are stored after the last test"


def test_relation_of_another_schema_with_other_case_reads_its_topic(table: Table, shared: SharedReads) -> None:
    table.publish([(1, "ann")])
    shared.sql_of(table.spark, f"SELECT * FROM {table.relation}", [topic_of(table, "first", "second")])
    other = UpsertKafkaRelation.create(schema="elsewhere", identifier="USERS", type=RelationType.View)
    select = f"SELECT * FROM {other}"
    others = replace(topic_of(table, "third", "fourth"), relation=other)
    assert shared.sql_of(table.spark, select, [others]) == select, "Spark has one global temporary view for both names"


def test_single_test_reads_the_topic_itself(table: Table, shared: SharedReads) -> None:
    table.publish([(1, "ann")])
    select = f"SELECT * FROM {table.relation}"
    assert shared.sql_of(table.spark, select, [topic_of(table, "only")]) == select


def test_rows_that_cannot_be_decoded_concern_only_the_tests_that_read_them(table: Table, shared: SharedReads) -> None:
    table.publish([(1, "ann")])
    table.write_by_hand((json_key(2), b"not json", 0))
    select = f"SELECT count(*) FROM {table.relation}"
    sql = shared.sql_of(table.spark, select, [topic_of(table, "first", "second")])
    assert sql == select
    assert table.spark.sql(sql).collect()[0][0] == 2


def test_only_columns_that_all_tests_read_are_stored(table: Table, shared: SharedReads) -> None:
    table.publish([(1, "ann")])
    stored, relation = "global_temp.users", table.relation.render()
    topic = topic_of(table, "first", "second", columns=frozenset({"id"}))
    sql = shared.sql_of(table.spark, f"select id from {relation}\nwhere id is null", [topic])
    assert sql == "select id from global_temp.`users`\nwhere id is null"
    assert table.spark.table(stored).columns == ["id"]
    table.write_by_hand((json_key(2), json_value((2, None)), 0))
    shared.sql_of(table.spark, f"select id from {relation}\nwhere id is null", [topic])
    assert (table.spark.table(stored).columns, table.spark.table(stored).count()) == (["id"], 2)
    # A macro of the project has the name of one of dbt's tests.
    sql = shared.sql_of(table.spark, f"select distinct * from {relation} where name is null", [topic])
    assert [tuple(row) for row in table.spark.sql(sql).collect()] == [(2, None)]


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[Proxy, str]]:
    with proxied_cluster() as (proxy, _):
        yield proxy, proxy.address


def test_tests_of_a_command_fetch_a_topic_once(proxied: tuple[Proxy, str], tmp_path: Path) -> None:
    proxy, servers = proxied
    project = Project(tmp_path, servers).write({"models/users.sql": MODEL, "models/tests.yml": TESTS, **SINGULAR})

    def fetched(*arguments: str) -> int:
        before = proxy.answered[FETCH]
        done = project.run("test", *arguments)
        failed = [result["unique_id"] for result in done.run_results["results"] if result["status"] != "pass"]
        assert failed == (["test.shop.has_no_user_7"] if not arguments else []), done.output
        return proxy.answered[FETCH] - before

    with project.one_process():
        project.succeed("run")
        one = fetched("--select", "not_null_users_name")
        of_key = fetched("--select", "not_null_users_id", "unique_users_id")
        all_six = fetched()
    assert one > ROWS * 20, "the topic was not read through the proxy"
    # Offsets, metadata and a part that a consumer fetches again.
    assert of_key < 1.2 * one, f"{of_key} bytes, one test {one}"
    assert all_six < 1.2 * one, f"{all_six} bytes, one test {one}"
