"""`dbt run` killed at every stage: readers never see a part of it, and the next run makes the topic equal to the SELECT."""

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

ROWS = 60_000
MODEL = """
{{ config(materialized='upsert_kafka', unique_key='id', topic=var('topic'), sink_delivery_guarantee=var('guarantee'),
          properties={'batch.size': '16384'}) }}
select id, concat('version ', {{ var('version') }}, ' of ', id) as name from range(ROWS)
"""


class Run:
    """A dbt project whose model says another thing about every key in each version."""

    def __init__(self, scene: Scene, folder: Path, guarantee: str) -> None:
        self.scene = scene
        self._guarantee = guarantee
        self.processes: list[subprocess.Popen[str]] = []
        self.base = 0
        """Messages and markers in the topic before the run's own."""
        model = MODEL.replace("ROWS", str(ROWS))
        self._project = Project(folder, scene.cluster.bootstrap_servers).write({"models/people.sql": model})

    def arguments(self, version: int) -> list[str]:
        told = {"topic": self.scene.topic, "guarantee": self._guarantee, "version": version}
        return ["run", "--vars", json.dumps(told)]

    def start(self, version: int) -> subprocess.Popen[str]:
        """Start a run that writes slowly; what a killed one left open is going to be aborted by it first."""
        self.scene.slow_down()
        self.base = self.scene.written() + self.scene.open_partitions()
        self.processes.append(self._project.start(*self.arguments(version)))
        return self.processes[-1]

    def succeed(self, version: int) -> dict[str, object]:
        self.scene.go_on()
        return self._project.succeed(*self.arguments(version)).response("people")

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


def before_the_transaction(run: Run, process: subprocess.Popen[str]) -> None:
    wait_for(lambda: bool(descendants(process.pid)), "Spark's JVM")
    kill(process)


def during_the_write(run: Run, process: subprocess.Popen[str]) -> None:
    run.scene.wait_until_written(run.base + 1)
    kill(process)


def after_the_last_write(run: Run, process: subprocess.Popen[str]) -> None:
    with _all_but_the_commit(run, process):
        kill(process)


def between_commit_and_answer(run: Run, process: subprocess.Popen[str]) -> None:
    [broker] = run.scene.cluster.brokers
    with ExitStack() as hold:
        with _all_but_the_commit(run, process):
            hold.enter_context(stopped(broker.pid))
        wait_for(lambda: has_unread_bytes(broker.node.port, process.pid), "the driver's commit on its way")
        kill(process)


@contextmanager
def _all_but_the_commit(run: Run, process: subprocess.Popen[str]) -> Iterator[None]:
    """All records are written and acknowledged, and the driver, which alone can commit, does nothing."""
    run.scene.wait_until_written(run.base + 1)
    with stopped(process.pid):
        run.scene.go_on()
        run.scene.wait_until_written(run.base + ROWS)
        [broker] = run.scene.cluster.brokers
        wait_for(lambda: not connections(broker.node.port, *python_workers(process.pid)), "the tasks to be done")
        assert run.scene.transaction() == TransactionState.ONGOING
        yield


@pytest.fixture
def run(
    request: pytest.FixtureRequest, spark: SparkSession, fault_cluster: Cluster, topic_name: str, tmp_path: Path
) -> Iterator[Run]:
    compacted: dict[str, Any] = {"cleanup.policy": "compact"}
    run = Run(Scene(spark, fault_cluster, topic_name, **compacted), tmp_path, request.param)
    yield run
    for process in run.processes:
        process.kill()


@pytest.mark.parametrize("run", ["exactly-once"], indirect=True)
def test_exactly_once_run_killed_at_every_stage(run: Run) -> None:
    run.succeed(version=0)
    for version, stage in enumerate([before_the_transaction, during_the_write, after_the_last_write], 1):
        stage(run, run.start(version))
        assert run.table() == of_version(0), stage.__name__
    between_commit_and_answer(run, run.start(version=4))
    # The decision was made, so every partition follows, although nobody is there to see it.
    run.scene.wait_until_over()
    assert run.scene.transaction() == TransactionState.COMPLETE_COMMIT
    assert run.table() == of_version(4)
    response = run.succeed(version=5)
    assert (response["updated"], response["delivery"], response["records"]) == (ROWS, "exactly-once", ROWS)
    assert run.table() == of_version(5)
    # Every key was seen once for each of the versions that were committed.
    assert len(run.scene.records()) == 3 * ROWS
    run.scene.wait_until_over()


@pytest.mark.parametrize("run", ["at-least-once"], indirect=True)
def test_at_least_once_run_killed_during_the_write_is_completed_by_the_next(run: Run) -> None:
    run.succeed(version=0)
    during_the_write(run, run.start(version=1))
    assert set(run.table()) == set(range(ROWS))
    run.succeed(version=2)
    assert run.table() == of_version(2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("run", ["exactly-once"], indirect=True)
def test_interrupted_run_aborts_its_transaction(run: Run, number: signal.Signals) -> None:
    process = run.start(version=1)
    run.scene.wait_until_written(run.base + 1)
    process.send_signal(number)
    run.scene.go_on()
    output, _ = process.communicate()
    assert process.returncode != 0
    assert run.scene.transaction() == TransactionState.COMPLETE_ABORT, output
    assert run.scene.records() == []
