"""Definitions of Spark's catalog: written to a file and loaded again they are the same, and rows are never touched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.spark import catalog_internals, project_catalog
from dbt.adapters.upsert_kafka.spark.catalog_internals import Kind
from dbt.adapters.upsert_kafka.spark.project_catalog import ProjectCatalog

STATEMENTS = {
    "plain": "CREATE TABLE {0} USING parquet OPTIONS ('password' = 'p') COMMENT 'c' TBLPROPERTIES ('a.b' = 'c') "
    "AS SELECT id, 'x' AS `the name` FROM range(3)",
    "partitioned": "CREATE TABLE {0} (id INT NOT NULL COMMENT 'n', d STRING) USING parquet PARTITIONED BY (d)",
    "bucketed": "CREATE TABLE {0} USING parquet CLUSTERED BY (id) SORTED BY (id) INTO 2 BUCKETS AS SELECT id FROM range(9)",
    "shown": "CREATE VIEW {0} (n COMMENT 'number') COMMENT 'v' AS SELECT count(*) AS n FROM {1}.plain",
}


@pytest.fixture
def schema(spark: SparkSession, schema_name: str) -> Iterator[str]:
    # As in a project's catalog, see `settings`.
    spark.conf.set("spark.sql.hive.manageFilesourcePartitions", "false")
    spark.sql(f"CREATE DATABASE {schema_name}")
    yield schema_name
    spark.sql(f"DROP DATABASE {schema_name} CASCADE")
    spark.conf.unset("spark.sql.hive.manageFilesourcePartitions")


def describe(spark: SparkSession, relation: str) -> list[Row]:
    """What Spark says about a relation, without a second copy of the view's text, which is not kept."""
    return [row for row in spark.sql(f"DESCRIBE EXTENDED {relation}").collect() if row["col_name"] != "View Original Text"]


def replace_file(path: Path, definition: dict[str, object]) -> None:
    new = path.with_name(".new")
    new.write_text(json.dumps(definition))
    new.replace(path)


def test_definition_that_is_loaded_again_is_the_same(spark: SparkSession, schema: str) -> None:
    for name, statement in STATEMENTS.items():
        spark.sql(statement.format(f"{schema}.{name}", schema))
    spark.sql(f"INSERT INTO {schema}.partitioned VALUES (1, 'u'), (2, 'v')")
    spark.sql(f"CREATE FUNCTION {schema}.plus(x INT) RETURNS INT RETURN x + 1")
    described = {name: describe(spark, f"{schema}.{name}") for name in STATEMENTS}
    rows = {name: spark.table(f"{schema}.{name}").collect() for name in STATEMENTS}
    definitions: list[tuple[Kind, str]] = [("function", "plus"), *(("table", name) for name in STATEMENTS)]
    for kind, name in definitions:
        found = catalog_internals.read_definition(spark, kind, schema, name)
        text = json.dumps({"kind": kind, "database": schema, "name": name, **(found or {})})
        catalog_internals.remove_definition(spark, kind, schema, name)
        assert catalog_internals.read_definition(spark, kind, schema, name) is None
        catalog_internals.write_definition(spark, json.loads(text))
        assert catalog_internals.read_definition(spark, kind, schema, name) == found
    for name in STATEMENTS:
        spark.catalog.refreshTable(f"{schema}.{name}")
        assert describe(spark, f"{schema}.{name}") == described[name]
        assert sorted(spark.table(f"{schema}.{name}").collect()) == sorted(rows[name])
    assert spark.sql(f"SELECT {schema}.plus(1)").first() == (2,)


def test_statistics_of_a_table_are_left_out(spark: SparkSession, schema: str) -> None:
    spark.sql(f"CREATE TABLE {schema}.t USING parquet AS SELECT 1 AS id")
    spark.sql(f"ANALYZE TABLE {schema}.t COMPUTE STATISTICS")
    found = catalog_internals.read_definition(spark, "table", schema, "t")
    assert found is not None
    catalog_internals.write_definition(spark, {"kind": "table", "database": schema, "name": "t", **found})
    assert spark.table(f"{schema}.t").collect() == [(1,)]


def test_changes_of_another_process_are_read(
    spark: SparkSession, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.sql(f"CREATE TABLE {schema}.mine USING parquet AS SELECT 1 AS id")
    catalog = ProjectCatalog(tmp_path)
    monkeypatch.setattr(catalog_internals, "listen", lambda *_: None)
    catalog.attach(spark)
    project_catalog.export(spark, tmp_path / "exported")
    other = tmp_path / "catalog" / schema
    shutil.copytree(tmp_path / "exported" / schema, other)
    definition = json.loads((other / "mine.table.json").read_text())
    replace_file(other / "theirs.table.json", {**definition, "name": "theirs"})
    catalog.refresh()
    assert spark.table(f"{schema}.theirs").collect() == [(1,)]
    replace_file(other / "theirs.table.json", {**definition, "name": "theirs", "comment": "changed"})
    catalog.refresh()
    assert "changed" in str(spark.sql(f"DESCRIBE EXTENDED {schema}.theirs").collect())
    (other / "theirs.table.json").unlink()
    catalog.refresh()
    assert not spark.catalog.tableExists(f"{schema}.theirs")
    assert spark.table(f"{schema}.mine").collect() == [(1,)], "the folder of the table is the same and was not deleted"
    catalog.close()


def test_file_that_is_not_a_definition_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "catalog" / "analytics" / "orders.table.json"
    file.parent.mkdir(parents=True)
    for text, message in (("{", "is not a definition of the project's catalog"), ('{"version": 2}', "has version 2")):
        file.write_text(text)
        with pytest.raises(UpsertKafkaError, match=message):
            ProjectCatalog(tmp_path)
