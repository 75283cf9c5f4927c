"""Helper tables (raw records, snapshots) are in a schema of their own, and a table without our mark is never dropped."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.catalog import name, properties
from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.publish import snapshots
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from tests.counts import counts
from tests.dbt_project import Project
from tests.functional.test_kafka_source import Sources
from tests.functional.topic_writer import Message, write
from tests.services import end_offsets, read_topic
from tests.tables import Table, json_key, json_value

ANN, BOB = (1, "ann"), (2, "bob")


# ---- through dbt

FILES = {
    # As many rows as a snapshot needs.
    "models/orders.sql": (
        "{{ config(materialized='upsert_kafka', unique_key='id') }} select id, {{ var('price') }} as price from range(100000)"
    ),
    "models/zz.sql": (
        "{{ config(materialized='kafka_source', topic=target.schema ~ '.b') }} "
        "-- depends_on: {{ ref('b') }}\nselect id from {{ kafka_topic() }}"
    ),
    "models/b.sql": "{{ config(materialized='upsert_kafka', unique_key='id') }} select {{ var('price') }} as id",
    "models/raw.sql": "{{ config(materialized='table') }} select * from {{ ref('b').topic_table }}",
    "models/schema.yml": "models: [{name: zz, columns: [{name: id, data_type: int}]}]",
    "macros/query.sql": """
        {% macro query(sql) %}
          {% set rows = run_query(sql).rows %}
          {% for row in rows %}{% do log("row: " ~ row.values() | join(","), info=true) %}{% endfor %}
        {% endmacro %}""",
}


def query(project: Project, sql: str) -> list[str]:
    """Run a statement in the project's Spark; returns the rows as text."""
    output = project.succeed("run-operation", "query", "--args", json.dumps({"sql": sql})).output
    return sorted(re.findall(r"row: (.*)", output))


def test_users_tables_survive_and_wildcards_find_only_the_model(
    dbt_project: Callable[..., Project], broker: str, schema_name: str
) -> None:
    project = dbt_project(FILES)
    users_tables = [f"{schema_name}.orders__snapshot", f"{schema_name}.zz__topic"]
    with project.one_process():
        query(project, f"create schema {schema_name}")
        for table in users_tables:
            query(project, f"create table {table} using parquet as select 'years of work' as history")

        assert counts(project.succeed("run", "--vars", "price: 1").message("orders")) == (100000, 0, 0, 0)
        assert counts(project.succeed("run", "--vars", "price: 2").message("orders")) == (0, 100000, 0, 0)

        for table in users_tables:
            assert query(project, f"select * from {table}") == ["years of work"]
        assert query(project, f"show tables in {schema_name} like 'b*'") == [f"{schema_name},b,False"]
        assert [row.split(",")[1] for row in query(project, f"show tables in {schema_name}__kafka")] == [
            "b__topic",
            "orders__snapshot",
            "orders__topic",
            "zz__topic",
        ]
        raw = query(project, f"select partition, offset, string(key) from {schema_name}__kafka.b__topic")
        assert query(project, f"select partition, offset, string(key) from {schema_name}.raw") == raw
    records = read_topic(broker, f"{schema_name}.b")
    assert raw == sorted(f"{record.partition},{record.offset},{(record.key or b'').decode()}" for record in records)
    assert len(raw) == 3, "two messages and a tombstone"


# ---- tables of the user with the name of a helper table


def create_users_table(spark: SparkSession, table: UpsertKafkaRelation) -> None:
    spark.sql(f"CREATE DATABASE IF NOT EXISTS `{table.schema}`")
    spark.sql(f"DROP TABLE IF EXISTS {name(table)}")
    spark.sql(f"CREATE TABLE {name(table)} USING parquet AS SELECT 'years of work' AS history")


def assert_users_table_is_unchanged(spark: SparkSession, table: UpsertKafkaRelation) -> None:
    assert [tuple(row) for row in spark.table(name(table)).collect()] == [("years of work",)]


def topic_exists(table: Table) -> bool:
    with KafkaSettings(table.broker).admin() as admin:
        return topics.describe(admin, table.topic) is not None


@pytest.mark.parametrize("materialization", ["upsert_kafka", "kafka"])
def test_run_is_refused_before_it_writes_if_the_name_of_its_raw_records_is_taken(table: Table, materialization: str) -> None:
    table.materialization = materialization
    table.publish([ANN])
    before = table.end()
    create_users_table(table.spark, table.relation.topic_table)

    message = f"model users: {table.schema}__kafka.users__topic exists and was not created by dbt-upsert-kafka"
    for mode in ("publish", "preview", "check"):
        with pytest.raises(GuardError, match=message):
            table.publish([ANN, BOB], mode=mode)

    assert table.end() == before
    assert_users_table_is_unchanged(table.spark, table.relation.topic_table)


def test_first_run_is_refused_without_creating_the_topic_if_the_name_is_taken_by_a_view(table: Table) -> None:
    helper = table.relation.topic_table
    table.spark.sql(f"CREATE DATABASE `{helper.schema}`")
    table.spark.sql(f"CREATE VIEW {name(helper)} AS SELECT 'years of work' AS history")
    with pytest.raises(GuardError, match="was not created by dbt-upsert-kafka"):
        table.publish([ANN])
    assert not topic_exists(table)
    assert_users_table_is_unchanged(table.spark, helper)


def test_source_is_refused_if_the_name_of_its_raw_records_is_taken(spark: SparkSession, broker: str, topic_name: str) -> None:
    sources = Sources(spark, broker, topic_name)
    write(broker, topic_name, [Message({"n": 1})])
    before = end_offsets(broker, topic_name)
    create_users_table(spark, sources.relation.topic_table)
    with pytest.raises(GuardError, match=r"model events: .*__topic exists and was not created by dbt-upsert-kafka"):
        sources.run({"n": "int"}, topic=topic_name)
    assert_users_table_is_unchanged(spark, sources.relation.topic_table)
    assert end_offsets(broker, topic_name) == before


@pytest.fixture
def small_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is large enough for a snapshot."""
    monkeypatch.setattr(snapshots, "FEWEST_ROWS", 0)


@pytest.mark.usefixtures("small_snapshots")
def test_topic_is_right_without_a_snapshot_if_the_name_of_the_snapshot_is_taken(table: Table, warnings: list[str]) -> None:
    create_users_table(table.spark, table.relation.snapshot_table)
    table.publish([ANN])
    assert counts(table.publish([BOB])) == (1, 0, 1, 0)
    assert table.latest() == {json_key(2): json_value(BOB)}
    assert_users_table_is_unchanged(table.spark, table.relation.snapshot_table)
    expected = f"{table.schema}.users: {table.schema}__kafka.users__snapshot exists and was not created by dbt-upsert-kafka"
    assert [warning.startswith(expected) for warning in warnings] == [True, True], "one warning per run"


@pytest.mark.usefixtures("small_snapshots")
def test_snapshot_of_a_killed_run_has_the_mark_and_is_replaced(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    save = properties.save

    def killed(spark: SparkSession, helper: UpsertKafkaRelation, values: Mapping[str, str]) -> None:
        if helper.identifier == "users__snapshot":
            raise AnalysisException("killed")
        save(spark, helper, values)

    with monkeypatch.context() as patches:
        patches.setattr(properties, "save", killed)
        table.publish([ANN])
    snapshot = table.relation.snapshot_table
    assert properties.read(table.spark, snapshot) == properties.mark(table.relation)
    table.publish([ANN, BOB])
    assert properties.mark(table.relation).items() < properties.read(table.spark, snapshot).items()
    assert table.spark.table(name(snapshot)).count() == 2


# ---- helper tables of earlier versions, in the user's schema

FINGERPRINT = {properties.FINGERPRINT: "of version 0.1.0"}


@pytest.mark.parametrize(
    ("table_properties", "is_dropped"),
    [
        pytest.param(FINGERPRINT, True, id="of an earlier version"),
        pytest.param({}, False, id="of the user"),
        # The schema `a__kafka` may have models of its own.
        pytest.param({**FINGERPRINT, properties.MARK: "a.users"}, False, id="of this version and another schema"),
    ],
)
def test_helper_tables_of_earlier_versions_are_dropped_and_others_stay(
    table: Table, table_properties: dict[str, str], is_dropped: bool
) -> None:
    table.publish([ANN])
    # As version 0.1.0 would have left it.
    table.spark.sql(f"DROP TABLE {name(table.relation.topic_table)}")
    clause = f"TBLPROPERTIES ({properties.listed(table_properties)})" if table_properties else ""
    for suffix in ("topic", "snapshot"):
        table.spark.sql(f"CREATE TABLE `{table.schema}`.users__{suffix} USING parquet {clause} AS SELECT 1 AS id")

    assert counts(table.publish([ANN, BOB])) == (1, 0, 0, 1)

    assert table.view() == [ANN, BOB]
    tables = {row["tableName"] for row in table.spark.sql(f"SHOW TABLES IN `{table.schema}`").where("NOT isTemporary").collect()}
    assert tables == {"users"} | (set() if is_dropped else {"users__topic", "users__snapshot"})


# ---- the schema of the helper tables


def test_schema_that_cannot_be_created_refuses_the_run_before_the_topic_is_created(table: Table, tmp_path: Path) -> None:
    schema = f"{table.schema}__kafka"
    warehouse = Path(str(table.spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"))
    (warehouse / f"{schema}.db").write_text("a file where Spark would create a folder")
    with pytest.raises(GuardError, match=f"model users: the schema {schema}, which is needed .*, can't be created") as refused:
        table.publish([ANN])
    assert "\n" not in str(refused.value.msg)
    assert not topic_exists(table)

    table.spark.sql(f"CREATE DATABASE `{schema}` LOCATION '{tmp_path}'")
    table.publish([ANN])
    assert table.latest() == {json_key(1): json_value(ANN)}


def test_existing_schema_is_used_by_users_who_may_not_create_schemas(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.spark.sql(f"CREATE DATABASE `{table.schema}__kafka`")
    execute = type(table.spark).sql

    def without_right(spark: SparkSession, statement: str, *args: Any, **kwargs: Any) -> Any:
        if statement.startswith("CREATE DATABASE"):
            raise AnalysisException("permission denied")
        return execute(spark, statement, *args, **kwargs)

    monkeypatch.setattr(type(table.spark), "sql", without_right)
    table.publish([ANN])
    assert table.view() == [ANN]


def test_unchanged_run_reads_the_properties_once_and_changes_nothing_in_the_catalog(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.publish([ANN])
    statements: list[str] = []
    execute = type(table.spark).sql

    def counted(spark: SparkSession, statement: str, *args: Any, **kwargs: Any) -> Any:
        statements.append(statement)
        return execute(spark, statement, *args, **kwargs)

    monkeypatch.setattr(type(table.spark), "sql", counted)
    table.publish([ANN])
    about_catalog = [text for text in statements if text.startswith(("SHOW", "CREATE", "DROP", "ALTER"))]
    assert about_catalog == [f"SHOW TBLPROPERTIES {name(table.relation.topic_table)}"]
