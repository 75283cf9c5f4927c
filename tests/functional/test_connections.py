"""dbt's connections on one Spark: statements run when they are executed, and connections do not share settings."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from dbt_common.exceptions import DbtDatabaseError
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.connections import UpsertKafkaConnectionManager
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.spark import session

# Takes minutes unless it is cancelled.
LONG = "select count(*) from range(30000000000) where id % 7 = sqrt(id)"


@pytest.fixture
def manager(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[UpsertKafkaConnectionManager]:
    """The adapter's connection manager on the Spark of the tests."""
    monkeypatch.setattr(session, "_session", spark)
    credentials = UpsertKafkaCredentials(schema="default", bootstrap_servers="127.0.0.1:9")
    profile: Any = SimpleNamespace(credentials=credentials, query_comment=SimpleNamespace(job_label=False), threads=2)
    manager = UpsertKafkaConnectionManager(profile, SimpleNamespace(RLock=threading.RLock))  # type: ignore[arg-type]
    yield manager
    manager.cleanup_all()


@pytest.fixture
def connected(manager: UpsertKafkaConnectionManager) -> UpsertKafkaConnectionManager:
    manager.set_connection_name("model.one")
    return manager


def test_query_that_is_not_fetched_runs_and_its_error_is_a_dbt_error(connected: UpsertKafkaConnectionManager) -> None:
    with pytest.raises(DbtDatabaseError) as failed:
        connected.execute("select raise_error('it ran') from range(1)")
    assert "it ran" in str(failed.value)
    assert "\tat " not in str(failed.value)


def test_error_while_fetching_is_a_dbt_error(connected: UpsertKafkaConnectionManager) -> None:
    with pytest.raises(DbtDatabaseError, match="DIVIDE_BY_ZERO"):
        connected.execute("select 1 / (id - 1) from range(2)", fetch=True)


def test_limit_limits_the_fetched_rows_and_the_response_counts_them(connected: UpsertKafkaConnectionManager) -> None:
    response, table = connected.execute("select id from range(1000000000)", fetch=True, limit=3)
    assert len(table.rows) == response.rows_affected == 3


def test_all_statements_of_a_text_run(connected: UpsertKafkaConnectionManager) -> None:
    text = "create or replace temporary view v as select ';' as x; select x from v"
    _, table = connected.execute(text, fetch=True)
    assert [tuple(row) for row in table.rows] == [(";",)]


def in_thread(work: Callable[[], Any]) -> Any:
    """Run a function in a new thread and return its result or its error."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    return results[0]


def test_settings_and_temporary_views_are_not_shared_between_connections(connected: UpsertKafkaConnectionManager) -> None:
    connected.execute("set spark.sql.session.timeZone = Asia/Kolkata; create temporary view mine as select 1 as x")

    def in_another_connection() -> tuple[Any, bool]:
        connected.set_connection_name("model.two")
        _, zone = connected.execute("select current_timezone()", fetch=True)
        _, views = connected.execute("show views", fetch=True)
        return zone.rows[0][0], any(row["viewName"] == "mine" for row in views.rows)

    assert in_thread(in_another_connection) == ("UTC", False)


def test_cancel_stops_the_running_job(manager: UpsertKafkaConnectionManager, spark: SparkSession) -> None:
    def run_long_query() -> None:
        manager.set_connection_name("model.long")
        manager.execute(LONG, fetch=True)

    def cancel() -> None:
        while not spark.sparkContext.statusTracker().getActiveJobsIds():
            time.sleep(0.05)
        manager.cancel_open()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    error = in_thread(run_long_query)
    canceller.join(60)
    assert isinstance(error, DbtDatabaseError)
    assert "cancel" in str(error).lower()
