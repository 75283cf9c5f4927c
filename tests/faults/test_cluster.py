"""Faults of a cluster with three brokers and three replicas: a rolling restart, and too few replicas in sync."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.faults.conftest import SWIFT
from tests.faults.scene import Scene, wait_for
from tests.faults.test_refusals import SOON, both, refused
from tests.services import Cluster

MANY = 1_000_000
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
