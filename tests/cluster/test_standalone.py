"""A Spark cluster whose workers have neither dbt nor this package: the code of the tasks is sent with the job."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.cluster import shop
from tests.dbt_project import Project
from tests.faults.conftest import SWIFT
from tests.faults.scene import PATIENCE, Scene, connections, descendants, wait_for
from tests.services import Cluster
from tests.spark_cluster import StandaloneSpark

ROWS = 20_000
MODEL = f"""\
{{{{ config(materialized='upsert_kafka', unique_key='id', topic=var('topic'), sink_delivery_guarantee='exactly-once',
            properties={{'batch.size': '8192'}}) }}}}
select id from range({ROWS})
"""
TOO_LARGE = """\
{{ config(materialized='upsert_kafka', unique_key='id', topic=var('topic'), sink_delivery_guarantee='exactly-once') }}
select id, array_join(transform(sequence(1, 100), i -> sha2(concat(id, i), 512)), '') as noise from range(10)
"""


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with Cluster(properties=SWIFT) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def standalone() -> Iterator[StandaloneSpark]:
    with StandaloneSpark() as spark:
        yield spark


@pytest.mark.nightly
def test_topics_equal_their_selects(standalone: StandaloneSpark, kafka: Cluster, dbt_project: Callable[..., Project]) -> None:
    shop.run_two_days(dbt_project(shop.FILES, bootstrap_servers=kafka.bootstrap_servers, **standalone.profile))


@pytest.mark.nightly
def test_executor_killed_in_a_transaction_leaves_all_records_or_none(
    standalone: StandaloneSpark, kafka: Cluster, dbt_project: Callable[..., Project], topic_name: str
) -> None:
    scene = Scene(None, kafka, topic_name, config={"cleanup.policy": "compact"})  # type: ignore[arg-type]  # the rows come from dbt
    project = dbt_project({"models/many.sql": MODEL}, bootstrap_servers=kafka.bootstrap_servers, **standalone.profile)
    command = ["run", "--vars", json.dumps({"topic": topic_name})]
    with scene.watched():
        scene.slow_down()
        process = project.start(*command)
        try:
            scene.wait_until_written(1)
            os.kill(writing_executor(standalone, kafka), signal.SIGKILL)
            scene.go_on()
            output, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
            scene.go_on()
        scene.wait_until_over()
        assert (process.returncode, ids(scene)) in ((0, list(range(ROWS))), (1, [])), output
        assert process.returncode == 0 or "Nothing of this run is visible to read_committed readers" in output, output
        project.succeed(*command)
    assert ids(scene) == list(range(ROWS))


@pytest.mark.nightly
def test_first_error_of_a_task_is_reported_although_spark_would_repeat_it(
    standalone: StandaloneSpark, kafka: Cluster, dbt_project: Callable[..., Project], topic_name: str
) -> None:
    """spark.task.maxFailures is 4 on a cluster: a second attempt may not write, and its error would hide the first."""
    scene = Scene(None, kafka, topic_name, config={"max.message.bytes": "2000"})  # type: ignore[arg-type]
    project = dbt_project({"models/large.sql": TOO_LARGE}, bootstrap_servers=kafka.bootstrap_servers, **standalone.profile)
    outcome = project.run("run", "--vars", json.dumps({"topic": topic_name}))
    assert outcome.exit_code == 1
    assert "a message is larger than allowed" in outcome.message("large"), outcome.output
    assert "Nothing of this run is visible" in outcome.message("large") and scene.records() == []


@pytest.mark.nightly
def test_no_snapshot_is_written_to_local_disks_of_executors(
    standalone: StandaloneSpark, kafka: Cluster, dbt_project: Callable[..., Project]
) -> None:
    model = "{{ config(materialized='upsert_kafka', unique_key='id') }} select id from range(100000)"
    project = dbt_project({"models/large.sql": model}, bootstrap_servers=kafka.bootstrap_servers, **standalone.profile)
    assert project.succeed("run").response("large")["inserted"] == 100_000
    assert not list(project.folder.rglob("*__snapshot*"))


def writing_executor(spark: StandaloneSpark, kafka: Cluster) -> int:
    """The process id of an executor whose Python worker is connected to the broker."""
    found: list[int] = []

    def find() -> bool:
        executors = [pid for pid, command in descendants(os.getpid()).items() if b"CoarseGrainedExecutorBackend" in command]
        port = kafka.brokers[0].node.port
        found[:] = [pid for pid in executors if connections(port, *descendants(pid))]
        return bool(found)

    wait_for(find, "an executor that writes")
    return found[0]


def ids(scene: Scene) -> list[int]:
    return sorted(json.loads(record.key or b"")["id"] for record in scene.records())
