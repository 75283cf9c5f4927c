"""Fixtures of dbt's adapter suites. The suites run dbt inside pytest's process and share one Spark and one broker.

They do not run together with the other tests: a process has one Spark, and theirs needs Delta.
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

from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.spark import session
from tests.adapter_suites.nightly import NIGHTLY
from tests.adapter_suites.spark_sql import in_spark_sql, without_database
from tests.dbt_project import QUICK_DELTA, QUICK_SPARK

SPARK = {
    **QUICK_SPARK,
    **QUICK_DELTA,
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.shuffle.partitions": 1,
    "spark.default.parallelism": 1,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Each statement is different and has few rows: generating code takes longer than interpreting the plan.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}

# The suites' own fixtures. Those defined below replace some of them.
globals().update({name: fixture for name, fixture in vars(suites).items() if isinstance(fixture, type(suites.project))})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.parent is not None and item.parent.name in NIGHTLY:
            item.add_marker("nightly")


@pytest.fixture(scope="session")
def profile(broker: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The profile of all suites. Spark is started with Delta here, so that a class may choose another file format."""
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
    """Parquet, which is faster, unless the class sets `file_format = "delta"`, which MERGE requires."""
    return {**profile, "file_format": getattr(request.cls, "file_format", "parquet")}


@pytest.fixture(scope="class")
def project(project_setup: TestProjInfo, project_files: None, dbt_profile_target: dict[str, Any]) -> TestProjInfo:
    """The suites' project. Its SQL is written for Postgres and is translated to Spark SQL."""
    as_written, file_format = project_setup.run_sql, dbt_profile_target["file_format"]
    for file in Path(project_setup.project_root, "snapshots").glob("*.sql"):
        file.write_text(without_database(file.read_text()))

    def run_sql(sql: str, fetch: str | None = None) -> Any:
        # Postgres casts literals to the column's type and updates rows of any table. Settings last for one connection.
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
    """A temporary folder; the suites' own fixture writes into the repository."""
    folder = str(tmp_path_factory.mktemp("logs"))
    os.environ["DBT_LOG_PATH"] = folder
    yield folder
    del os.environ["DBT_LOG_PATH"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of classes that ran, which docs/dbt_compatibility.md lists."""
    for outcome in ("passed", "failed", "error", "skipped"):
        reports = [report for report in terminalreporter.stats.get(outcome, []) if "adapter_suites" in report.nodeid]
        classes = {report.nodeid.rsplit("::", 1)[0] for report in reports}
        if classes:
            terminalreporter.write_line(f"dbt's adapter suites: {len(classes)} classes with {len(reports)} tests {outcome}")
