"""dbt's own adapter suites run dbt many times inside one process: one Spark and one broker serve all of them.

They need a process of their own, because Spark's settings (Delta among them) are those of the first session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dbt.tests.fixtures import project as suites
from dbt.tests.fixtures.project import TestProjInfo
from dbt.tests.util import get_connection

from dbt.adapters.upsert_kafka import session
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from tests.adapter_suites.lengthy import LENGTHY
from tests.adapter_suites.spark_sql import in_spark_sql, without_database
from tests.dbt_project import QUICK_SPARK

SPARK = {
    **QUICK_SPARK,
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": 1,
    "spark.default.parallelism": 1,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Every statement here is another one, on a few rows: compiling it takes longer than interpreting it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # Delta reads its log with 50 tasks otherwise.
    "spark.databricks.delta.snapshotPartitions": 1,
    # Through another of Hadoop's interfaces, which starts no program (readlink) for every look at a file.
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.databricks.delta.stats.collect": "false",
}

# The suites' fixtures, below which ours take the place of some.
globals().update({name: fixture for name, fixture in vars(suites).items() if isinstance(fixture, type(suites.project))})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.parent is not None and item.parent.name in LENGTHY:
            item.add_marker("lengthy")


@pytest.fixture(scope="session")
def profile(broker: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The profile of all suites; Spark runs with it already, so that the file format may be another in each of them."""
    target: dict[str, Any] = {
        "bootstrap_servers": broker,
        "master": "local[2]",
        "file_format": "delta",
        "topic_defaults": {"partitions": 1},
        "spark": {**SPARK, "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))},
    }
    session.get_session(UpsertKafkaCredentials(schema="default", **target))
    return {"type": "upsert_kafka", "threads": 2, **target}


@pytest.fixture(scope="class")
def dbt_profile_target(request: pytest.FixtureRequest, profile: dict[str, Any]) -> dict[str, Any]:
    """Parquet, which is quicker, unless the class says `file_format = "delta"`: what merges needs that."""
    return {**profile, "file_format": getattr(request.cls, "file_format", "parquet")}


@pytest.fixture(scope="class")
def project(project_setup: TestProjInfo, project_files: None, dbt_profile_target: dict[str, Any]) -> TestProjInfo:
    """The suites' own SQL is written for Postgres; their statements are run in Spark's spelling."""
    as_written, file_format = project_setup.run_sql, dbt_profile_target["file_format"]
    for file in Path(project_setup.project_root, "snapshots").glob("*.sql"):
        file.write_text(without_database(file.read_text()))

    def run_sql(sql: str, fetch: str | None = None) -> Any:
        # Postgres takes a literal as what the column is, and changes rows of any table; a setting holds for one connection.
        settings = f"set spark.sql.storeAssignmentPolicy = legacy; set spark.sql.sources.default = {file_format}; "
        return as_written(settings + in_spark_sql(without_database(sql)), fetch)

    def get_tables_in_schema() -> dict[str, str]:
        with get_connection(project_setup.adapter) as _:
            relations = project_setup.adapter.list_relations_without_caching(
                project_setup.adapter.Relation.create(schema=project_setup.test_schema)
            )
        return {relation.identifier: relation.type for relation in relations}

    vars(project_setup).update(run_sql=run_sql, get_tables_in_schema=get_tables_in_schema)
    return project_setup


@pytest.fixture(scope="class")
def logs_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Not below the repository, where the suites' own fixture would write."""
    folder = str(tmp_path_factory.mktemp("logs"))
    os.environ["DBT_LOG_PATH"] = folder
    yield folder
    del os.environ["DBT_LOG_PATH"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many classes of the suites ran, which is what docs/dbt_compatibility.md lists."""
    for outcome in ("passed", "failed", "error", "skipped"):
        reports = [report for report in terminalreporter.stats.get(outcome, []) if "adapter_suites" in report.nodeid]
        classes = {report.nodeid.rsplit("::", 1)[0] for report in reports}
        if classes:
            terminalreporter.write_line(f"dbt's adapter suites: {len(classes)} classes with {len(reports)} tests {outcome}")
