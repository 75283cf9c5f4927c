"""Three brokers, three replicas: a rolling restart during a write loses and doubles nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import DeliveryError
from dbt.adapters.upsert_kafka.sinks.protocol import Client
from tests.faults.scene import Scene, wait_for
from tests.faults.test_refusals import SOON, refused
from tests.services import Cluster

MANY = 1_000_000


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        yield cluster


both = pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])


@pytest.mark.slow
@both
def test_too_few_replicas_are_told(spark: SparkSession, three_brokers: Cluster, topic_name: str, guarantee: str) -> None:
    scene = Scene(spark, three_brokers, topic_name, partitions=6, **{"min.insync.replicas": "3"})
    three_brokers.brokers[-1].kill()
    try:
        wait_for(lambda: scene.replicas_in_sync() == 2, "the cluster to miss the broker")
        refused(scene, guarantee, "fewer replicas are in sync than the topic's min.insync.replicas", **SOON)
    finally:
        three_brokers.brokers[-1].start()


@pytest.mark.slow
@both
def test_rolling_restart_during_a_write(spark: SparkSession, three_brokers: Cluster, topic_name: str, guarantee: str) -> None:
    scene = Scene(spark, three_brokers, topic_name, partitions=6, **{"min.insync.replicas": "2"})
    with scene.delivering(scene.rows(MANY), guarantee) as delivery:
        for broker in three_brokers.brokers:
            assert not delivery.done()
            broker.stop()
            broker.start()
        scene.go_on()
        delivery.result()
    records, keys = scene.count()
    assert keys == MANY
    assert guarantee != "exactly-once" or records == MANY
    scene.wait_until_over()


@pytest.mark.slow
def test_transaction_needs_no_broker_newer_than_three(spark: SparkSession, topic_name: str) -> None:
    with Cluster(version="3.9.1") as cluster:
        scene = Scene(spark, cluster, topic_name)
        scene.deliver(scene.rows(1000))
        with scene.delivering(scene.rows(60_000)) as delivery:
            with Client({"bootstrap_servers": cluster.bootstrap_servers}, 30) as newer:
                newer.open(scene.transactional_id, 60_000)
            scene.go_on()
            with pytest.raises(DeliveryError, match="a newer run of the same model"):
                delivery.result()
        assert scene.keys() == list(range(1000))
        scene.wait_until_over()
