"""`dbt run` killed or interrupted at every step: readers never see a part of a run, and the next run makes the topic equal.

The run that is killed is dbt in a separate process. The runs before and after it call the adapter's `publish` in this process,
which saves starting Spark each time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import TransactionState
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.state.record import Owner
from tests.dbt_project import Project
from tests.faults.pause import Pause
from tests.faults.scene import Scene, connections, descendants, has_unread_bytes, python_workers, stopped, wait_for
from tests.property_tests import NIGHTLY
from tests.services import Cluster
from tests.tables import Table

ROWS, KILLS = 20_000, 12
ENDING = (TransactionState.PREPARE_ABORT, TransactionState.PREPARE_COMMIT)
SELECT = f"select id, concat('version ', VERSION, ' of ', id) as name from range({ROWS})"
MODEL = "{{ config(materialized='upsert_kafka', unique_key='id', topic=var('topic'), **var('options')) }}\n"


class Model:
    """A model in which every row changes with each version."""

    def __init__(self, scene: Scene, schema: str, folder: Path, guarantee: str) -> None:
        self.scene = scene
        self.processes: list[subprocess.Popen[str]] = []
        self.base = 0
        """Number of messages and markers in the topic before the started run writes."""
        self._options: dict[str, Any] = {"sink_delivery_guarantee": guarantee, "properties": {"batch.size": "8192"}}
        servers = scene.cluster.bootstrap_servers
        self._table = Table(scene.spark, servers, scene.topic, schema, scene.partitions)
        self._table.owner = Owner("shop", "dev", "analytics", "people")
        sql = MODEL + SELECT.replace("VERSION", "{{ var('version') }}")
        self._project = Project(folder, servers).write({"models/people.sql": sql})

    def start(self, version: int) -> subprocess.Popen[str]:
        """Start dbt, which writes slowly. It first aborts the transaction that a killed run left open."""
        self.scene.slow_down()
        self.base = self.scene.written() + self.scene.open_partitions()
        variables = {"topic": self.scene.topic, "version": version, "options": self._options}
        self.processes.append(self._project.start("run", "--vars", json.dumps(variables)))
        return self.processes[-1]

    def wait_until_writing(self) -> None:
        self.scene.wait_until_written(self.base + 1)

    def publish(self, version: int) -> Any:
        """Run to the end, without a limit."""
        self.scene.go_on()
        return self._table.publish(SELECT.replace("VERSION", str(version)), **self._options)

    def table(self) -> dict[int, str]:
        """The latest value of each key for a read_committed reader."""
        latest = {record.key: record.value for record in self.scene.records()}
        return {json.loads(key or b"")["id"]: json.loads(value)["name"] for key, value in latest.items() if value}


def of_version(version: int) -> dict[int, str]:
    return {i: f"version {version} of {i}" for i in range(ROWS)}


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the driver. Spark's JVM and its workers then end by themselves."""
    family = descendants(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family), "the end of Spark's processes")


def kill_before_the_transaction(model: Model, process: subprocess.Popen[str]) -> None:
    wait_for(lambda: bool(descendants(process.pid)), "Spark's JVM")
    kill(process)


def kill_during_the_write(model: Model, process: subprocess.Popen[str]) -> None:
    model.wait_until_writing()
    kill(process)


def kill_after_the_last_write(model: Model, process: subprocess.Popen[str]) -> None:
    with _all_but_the_commit(model, process):
        kill(process)


def kill_between_commit_and_answer(model: Model, version: int, pause: Pause) -> None:
    """Let dbt wait when data and state record are written, and kill it when the broker has the commit but did not read it."""
    [broker] = model.scene.cluster.brokers
    with pause.applied():
        process = model.start(version)
    model.wait_until_writing()
    model.scene.go_on()
    pause.wait()
    assert model.scene.transaction() == TransactionState.ONGOING
    with stopped(broker.pid):
        pause.go_on()
        wait_for(lambda: has_unread_bytes(broker.node.port, process.pid), "the driver's commit request")
        kill(process)


@contextmanager
def _all_but_the_commit(model: Model, process: subprocess.Popen[str]) -> Iterator[None]:
    """All records are written and acknowledged, and the driver is stopped before it commits."""
    model.wait_until_writing()
    with stopped(process.pid):
        model.scene.go_on()
        model.scene.wait_until_written(model.base + ROWS)
        [broker] = model.scene.cluster.brokers
        wait_for(lambda: not connections(broker.node.port, *python_workers(process.pid)), "the end of the tasks")
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
def test_killed_exactly_once_run_is_visible_completely_or_not_at_all(model: Model, tmp_path: Path) -> None:
    scene = model.scene
    with scene.watched():
        model.publish(version=0)
        kill_between_commit_and_answer(model, 1, Pause(tmp_path / "pause", "_commit"))
        # The coordinator has the commit, so it writes all markers without the driver.
        scene.wait_until_over()
        assert scene.transaction() == TransactionState.COMPLETE_COMMIT
        assert model.table() == of_version(1)
        kills = [kill_during_the_write, *([kill_after_the_last_write, kill_before_the_transaction] if NIGHTLY else [])]
        for version, kill_at_step in enumerate(kills, 2):
            kill_at_step(model, model.start(version))
            assert model.table() == of_version(1), kill_at_step.__name__
        published = model.publish(version=5)
    assert (published.updated, published.delivery, published.records) == (ROWS, "exactly-once", ROWS)
    assert model.table() == of_version(5)
    # Three versions were committed, and every key was written once in each.
    assert len(scene.records()) == 3 * ROWS
    scene.wait_until_over()


@pytest.mark.nightly
@exactly_once
def test_run_killed_at_a_random_moment_is_visible_completely_or_not_at_all(model: Model, finding: Callable[[str], None]) -> None:
    seed = int(os.environ.get("UPSERT_KAFKA_KILL_SEED", random.randrange(1 << 32)))
    moments, scene, outcomes = random.Random(seed), model.scene, Counter[str]()
    visible = 0
    with scene.watched():
        model.publish(version=0)
        for version in range(1, KILLS + 1):
            process = model.start(version)
            outcome = kill_at_random(model, process, moments)
            wait_for(lambda: scene.transaction() not in ENDING, "the end of a commit that the coordinator has")
            table = model.table()
            assert table in (of_version(visible), of_version(version)), f"UPSERT_KAFKA_KILL_SEED={seed}"
            if table == of_version(version):
                visible = version
            outcomes[f"{outcome}, {'visible' if visible == version else 'not visible'}"] += 1
        assert model.publish(version=KILLS + 1).updated == ROWS
    finding(f"UPSERT_KAFKA_KILL_SEED={seed}: {dict(outcomes)}")
    assert model.table() == of_version(KILLS + 1)
    assert any(outcome.startswith("killed while") for outcome in outcomes), outcomes
    scene.wait_until_over()


def kill_at_random(model: Model, process: subprocess.Popen[str], moments: random.Random) -> str:
    """Kill dbt before, while or after it writes. Returns when it was."""
    stage = moments.choice(
        ["before it wrote", "while it wrote slowly", "while it wrote and committed", "while it wrote and committed"]
    )
    if stage == "before it wrote":
        time.sleep(moments.uniform(0, 10))
    else:
        model.wait_until_writing()
        if "committed" in stage:
            model.scene.go_on()
        time.sleep(moments.uniform(0, 8 if "committed" in stage else 2))
    if process.poll() is not None:
        process.communicate()
        return "ended"
    kill(process)
    return f"killed {stage}"


@pytest.mark.nightly
@at_least_once
def test_killed_at_least_once_run_is_completed_by_the_next_run(model: Model) -> None:
    model.publish(version=0)
    kill_during_the_write(model, model.start(version=1))
    assert set(model.table()) == set(range(ROWS))
    model.publish(version=2)
    assert model.table() == of_version(2)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
@exactly_once
def test_interrupted_exactly_once_run_aborts_its_transaction(model: Model, number: signal.Signals) -> None:
    output = interrupted(model, number)
    assert "the write was cancelled. Nothing of this run is visible to read_committed readers" in output
    assert model.scene.transaction() in (TransactionState.COMPLETE_ABORT, TransactionState.EMPTY)
    assert model.scene.records("read_uncommitted") != [] and model.scene.records() == []


@pytest.mark.nightly
@at_least_once
def test_interrupted_at_least_once_run_is_completed_by_the_next_run(model: Model) -> None:
    output = interrupted(model, signal.SIGTERM)
    assert "the write was cancelled. A part of the changes may have been written; the next run completes them" in output
    model.publish(version=1)
    assert model.table() == of_version(1)


def interrupted(model: Model, number: signal.Signals) -> str:
    """Send a signal to dbt while it writes, and return its output."""
    process = model.start(version=1)
    model.wait_until_writing()
    process.send_signal(number)
    output, _ = process.communicate()
    assert process.returncode == 2
    assert f"{number.name}: the command was stopped." in output and "Traceback" not in output
    return output
