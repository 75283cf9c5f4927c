"""Faults of a cluster with three brokers and three replicas: a rolling restart, and too few replicas in sync."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Event
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.publish import pipeline
from dbt.adapters.upsert_kafka.state.record import Owner
from tests.faults.conftest import SWIFT
from tests.faults.scene import Scene, wait_for
from tests.faults.test_refusals import SOON, both, refused
from tests.services import Cluster
from tests.tables import Table

MANY = 1_000_000
COMPETING_ROWS, COMPETITIONS = 5_000, 4
COMPETING = f"SELECT CAST(id AS INT) AS id, '{{}}' AS name FROM range({COMPETING_ROWS})"
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[Cluster]:
    with Cluster(brokers=3, properties=SWIFT) as cluster:
        yield cluster


def test_rolling_restart_during_a_write_causes_no_loss_and_no_duplicates(
    spark: SparkSession, three_brokers: Cluster, topic_name: str
) -> None:
    scene = Scene(spark, three_brokers, topic_name, partitions=6, config={"min.insync.replicas": "2"})
    with scene.delivering(scene.rows(MANY)) as delivery:
        # About half of the records are written while the brokers are restarted.
        scene.slow_down(bytes_per_second=40_000)
        for broker in three_brokers.brokers:
            broker.stop()
            broker.start()
            assert not delivery.done()
        scene.go_on()
        delivery.result()
    assert scene.count() == (MANY, MANY)
    scene.wait_until_over()


def test_two_competing_runs_during_a_rolling_restart_are_never_torn(
    spark: SparkSession,
    three_brokers: Cluster,
    topic_name: str,
    schema_name: str,
    monkeypatch: pytest.MonkeyPatch,
    finding: Callable[[str], None],
) -> None:
    """One run wins and the other says so, or compares again and publishes afterwards."""
    comparisons, losers, compare = count(), [], pipeline.compare.compare

    def counted(*arguments: Any) -> Any:
        next(comparisons)
        return compare(*arguments)

    tables = [Table(spark, three_brokers.bootstrap_servers, topic_name, f"{schema_name}_{name}", 6) for name in "ab"]
    for table in tables:
        table.owner = Owner("shop", "dev", "analytics", "users")
        table.options |= {"sink_delivery_guarantee": "exactly-once", "topic_config": {"min.insync.replicas": "2"}}
    tables[0].publish(COMPETING.format("start"))
    monkeypatch.setattr(pipeline.compare, "compare", counted)
    over = Event()
    with ThreadPoolExecutor(3) as pool:
        restarts = pool.submit(_restart_until, over, three_brokers)
        try:
            for number in range(COMPETITIONS):
                names = [f"{table.schema[-1]} {number}" for table in tables]
                runs = [pool.submit(table.publish, COMPETING.format(name)) for table, name in zip(tables, names, strict=True)]
                errors = [run.exception() for run in runs]
                latest = {r.key: json.loads(r.value)["name"] for r in tables[0].records() if r.value}
                assert len(latest) == COMPETING_ROWS
                assert len(set(latest.values())) == 1, "the topic has the rows of one run"
                assert None in errors, errors
                [visible] = set(latest.values())
                assert visible in [name for name, error in zip(names, errors, strict=True) if error is None], errors
                for error in filter(None, errors):
                    assert "another run" in str(error) or "newer run" in str(error), error
                    losers.append(error)
        finally:
            over.set()
        restarted = restarts.result()
    repeated = next(comparisons) - 2 * COMPETITIONS
    finding(f"{COMPETITIONS} competitions: {len(losers)} runs lost, {repeated} more comparisons, {restarted} restarts of brokers")
    assert restarted >= 1
    assert losers or repeated > 0, "the runs did not meet"


def _restart_until(over: Event, cluster: Cluster) -> int:
    """Restart one broker after the other. Returns how often."""
    for number in count():
        if over.is_set():
            return number
        broker = cluster.brokers[number % len(cluster.brokers)]
        broker.stop()
        broker.start()
    raise AssertionError


@both
def test_too_few_replicas_in_sync_are_reported(
    spark: SparkSession, three_brokers: Cluster, topic_name: str, guarantee: str
) -> None:
    scene = Scene(spark, three_brokers, topic_name, config={"min.insync.replicas": "3"})
    three_brokers.brokers[-1].kill()
    try:
        wait_for(lambda: scene.replicas_in_sync() == 2, "the removal of the broker from the in-sync replicas")
        refused(scene, guarantee, "fewer replicas are in sync than the topic's min.insync.replicas requires", **SOON)
    finally:
        three_brokers.brokers[-1].start()
