"""`dbt run` killed or interrupted at every stage: readers never see a part of it, and the next run makes the topic equal.

What is killed is dbt in a process of its own. What was there before and what repairs it is published in this one, by the function
that dbt calls, which saves the start of a Spark each time.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka.admin._transactions import TransactionState
from pyspark.sql import SparkSession

from tests.dbt_project import Project
from tests.faults.scene import Scene, connections, descendants, has_unread_bytes, python_workers, stopped, wait_for
from tests.services import Cluster
from tests.tables import Table

ROWS = 20_000
SELECT = f"select id, concat('version ', VERSION, ' of ', id) as name from range({ROWS})"
MODEL = "{{ config(materialized='upsert_kafka', unique_key='id', topic=var('topic'), **var('options')) }}\n"


class Model:
    """A model that says another thing about every key in each version."""

    def __init__(self, scene: Scene, schema: str, folder: Path, guarantee: str) -> None:
        self.scene = scene
        self.processes: list[subprocess.Popen[str]] = []
        self.base = 0
        """Messages and markers in the topic before those of the started run."""
        self._options: dict[str, Any] = {"sink_delivery_guarantee": guarantee, "properties": {"batch.size": "8192"}}
        servers = scene.cluster.bootstrap_servers
        self._table = Table(scene.spark, servers, scene.topic, schema, scene.partitions)
        sql = MODEL + SELECT.replace("VERSION", "{{ var('version') }}")
        self._project = Project(folder, servers).write({"models/people.sql": sql})

    def start(self, version: int) -> subprocess.Popen[str]:
        """Start dbt, which writes slowly; what a killed run left open it is going to abort first."""
        self.scene.slow_down()
        self.base = self.scene.written() + self.scene.open_partitions()
        told = {"topic": self.scene.topic, "version": version, "options": self._options}
        self.processes.append(self._project.start("run", "--vars", json.dumps(told)))
        return self.processes[-1]

    def wait_until_writing(self) -> None:
        self.scene.wait_until_written(self.base + 1)

    def publish(self, version: int) -> Any:
        """Run to the end, at full speed."""
        self.scene.go_on()
        return self._table.publish(SELECT.replace("VERSION", str(version)), **self._options)

    def table(self) -> dict[int, str]:
        """What a committed reader has at the end."""
        latest = {record.key: record.value for record in self.scene.records()}
        return {json.loads(key or b"")["id"]: json.loads(value)["name"] for key, value in latest.items() if value}


def of_version(version: int) -> dict[int, str]:
    return {i: f"version {version} of {i}" for i in range(ROWS)}


def kill(process: subprocess.Popen[str]) -> None:
    """The driver is gone at once; Spark's JVM and its workers follow by themselves."""
    family = descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family), "the end of Spark without its driver")


def before_the_transaction(model: Model, process: subprocess.Popen[str]) -> None:
    wait_for(lambda: bool(descendants(process.pid)), "Spark's JVM")
    kill(process)


def during_the_write(model: Model, process: subprocess.Popen[str]) -> None:
    model.wait_until_writing()
    kill(process)


def after_the_last_write(model: Model, process: subprocess.Popen[str]) -> None:
    with _all_but_the_commit(model, process):
        kill(process)


def between_commit_and_answer(model: Model, process: subprocess.Popen[str]) -> None:
    [broker] = model.scene.cluster.brokers
    with ExitStack() as hold:
        with _all_but_the_commit(model, process):
            hold.enter_context(stopped(broker.pid))
        wait_for(lambda: has_unread_bytes(broker.node.port, process.pid), "the driver's commit on its way")
        kill(process)


@contextmanager
def _all_but_the_commit(model: Model, process: subprocess.Popen[str]) -> Iterator[None]:
    """All records are written and acknowledged, and the driver, which alone can commit, does nothing."""
    model.wait_until_writing()
    with stopped(process.pid):
        model.scene.go_on()
        model.scene.wait_until_written(model.base + ROWS)
        [broker] = model.scene.cluster.brokers
        wait_for(lambda: not connections(broker.node.port, *python_workers(process.pid)), "the tasks to be done")
        assert model.scene.transaction() == TransactionState.ONGOING
        yield


@pytest.fixture
def model(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    fault_cluster: Cluster,
    topic_name: str,
    schema_name: str,
    tmp_path: Path,
) -> Iterator[Model]:
    scene = Scene(spark, fault_cluster, topic_name, config={"cleanup.policy": "compact"})
    model = Model(scene, schema_name, tmp_path, request.param)
    try:
        yield model
    finally:
        scene.go_on()
        for process in model.processes:
            process.kill()


exactly_once = pytest.mark.parametrize("model", ["exactly-once"], indirect=True)
at_least_once = pytest.mark.parametrize("model", ["at-least-once"], indirect=True)


@exactly_once
def test_exactly_once_run_killed_at_every_stage(model: Model) -> None:
    scene = model.scene
    with scene.watched():
        model.publish(version=0)
        between_commit_and_answer(model, model.start(version=1))
        # The decision was made, so every partition follows, although nobody is there to see it.
        scene.wait_until_over()
        assert scene.transaction() == TransactionState.COMPLETE_COMMIT
        assert model.table() == of_version(1)
        for version, stage in enumerate([before_the_transaction, during_the_write, after_the_last_write], 2):
            stage(model, model.start(version))
            assert model.table() == of_version(1), stage.__name__
        published = model.publish(version=5)
    assert (published.updated, published.delivery, published.records) == (ROWS, "exactly-once", ROWS)
    assert model.table() == of_version(5)
    # Every key was written once for each of the versions that were committed.
    assert len(scene.records()) == 3 * ROWS
    scene.wait_until_over()


@at_least_once
def test_at_least_once_run_killed_during_the_write_is_completed_by_the_next(model: Model) -> None:
    model.publish(version=0)
    during_the_write(model, model.start(version=1))
    assert set(model.table()) == set(range(ROWS))
    model.publish(version=2)
    assert model.table() == of_version(2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@exactly_once
def test_interrupted_exactly_once_run_aborts_its_transaction(model: Model, number: signal.Signals) -> None:
    output = interrupted(model, number)
    assert "the write was cancelled. Nothing of this run is visible to read_committed readers" in output
    assert model.scene.transaction() in (TransactionState.COMPLETE_ABORT, TransactionState.EMPTY)
    assert model.scene.records("read_uncommitted") != [] and model.scene.records() == []


@at_least_once
def test_interrupted_at_least_once_run_says_what_the_next_run_does(model: Model) -> None:
    output = interrupted(model, signal.SIGTERM)
    assert "the write was cancelled. A part of the changes may have been written; the next run completes them" in output
    model.publish(version=1)
    assert model.table() == of_version(1)


def interrupted(model: Model, number: signal.Signals) -> str:
    """What dbt says when it is interrupted while it writes, and stops by itself."""
    process = model.start(version=1)
    model.wait_until_writing()
    process.send_signal(number)
    output, _ = process.communicate()
    assert process.returncode != 0
    return output
