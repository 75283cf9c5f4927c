"""Requests of a transaction that are lost, late or repeated on real brokers: records are visible once, or the run failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import TopicPartition
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka.errors import DeliveryError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.internals import stable_group_offsets
from dbt.adapters.upsert_kafka.sinks import GroupCommit, TransactionPlan
from dbt.adapters.upsert_kafka.sinks.protocol import Client
from tests.faults.conftest import SWIFT
from tests.faults.proxy import Fault, Proxy, proxied_cluster
from tests.faults.scene import PATIENCE, Scene, wait_for
from tests.faults.versions import VERSIONS
from tests.services import Cluster

ROWS, CONSUMED = 200, 7
REQUESTS = ("InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
OF_GROUPS = ("AddOffsetsToTxn", "TxnOffsetCommit")
# A second InitProducerId takes the transactional id away from the run that sent the first.
FENCING = [("InitProducerId", Fault.LATE), ("InitProducerId", Fault.REPEATED), ("InitProducerId", Fault.IN_NEXT_RUN)]
IN_MAKE_TEST = [
    ("4.1", "AddPartitionsToTxn", Fault.REPEATED),
    ("4.1", "EndTxn", Fault.ANSWER_LOST),
    ("4.1", "Produce", Fault.LATE),
    ("4.1", "InitProducerId", Fault.REPEATED),
]
CASES = [
    pytest.param(version, name, fault, marks=() if (version, name, fault) in IN_MAKE_TEST else pytest.mark.nightly)
    for version in VERSIONS
    for name in REQUESTS
    for fault in Fault
    if fault is not Fault.IN_NEXT_RUN
]


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[str, tuple[Proxy, Cluster]]]:
    """The clusters that the tests have asked for; the last one only, because each takes memory."""
    running: dict[str, Any] = {}
    yield running
    for context in running.pop("contexts", []):
        context.__exit__(None, None, None)


def started(clusters: dict[str, Any], version: str) -> tuple[Proxy, Cluster]:
    if version not in clusters:
        for context in clusters.pop("contexts", []):
            context.__exit__(None, None, None)
        clusters.clear()
        context = proxied_cluster(VERSIONS[version], SWIFT)
        clusters["contexts"] = [context]
        _, cluster = clusters[version] = context.__enter__()
        with Client(KafkaSettings(cluster.bootstrap_servers).python_client(), PATIENCE) as client:
            # While the coordinator starts, a first InitProducerId is answered with an error, and a second one fences nobody.
            client.open("first", timeout_ms=60_000)
    return clusters[version]


def deliver(scene: Scene, rows: DataFrame, name: str, fault: Fault) -> None:
    """Deliver rows. A run that the fault fences must have failed with nothing visible, and is repeated."""
    before = scene.keys()
    try:
        assert scene.deliver(rows, request_timeout_ms="5000").records == ROWS
        assert (name, fault) not in FENCING
    except DeliveryError as error:
        assert (name, fault) in FENCING, error
        assert "a newer run of the same model" in str(error)
        assert scene.keys() == before
        scene.deliver(rows)


def consume(scene: Scene, offset: int) -> TransactionPlan:
    """A transaction with the offset of a group. Any topic that exists will do as the source."""
    consumed = TopicPartition(scene.topic, 0)
    return TransactionPlan(groups=(GroupCommit("source", scene.topic, {}, {consumed: offset}, is_empty=False),))


def wait_until_consumed(scene: Scene, offset: int) -> None:
    consumed = TopicPartition(scene.topic, 0)
    wait_for(lambda: stable_group_offsets(scene.admin, scene.topic, [consumed])[consumed].offset == offset, "the group's offset")


@pytest.mark.parametrize(("version", "name", "fault"), CASES)
def test_records_are_visible_once_or_not_at_all(
    spark: SparkSession, clusters: dict[str, Any], topic_name: str, version: str, name: str, fault: Fault
) -> None:
    proxy, cluster = started(clusters, version)
    scene = Scene(spark, cluster, topic_name)
    if name in OF_GROUPS:
        scene.plan = consume(scene, CONSUMED)
    with proxy.fault(name, fault) as rule:
        deliver(scene, scene.rows(ROWS), name, fault)
        assert rule.is_used and rule.has_arrived is (fault is Fault.LATE)
    assert scene.keys() == list(range(ROWS))
    scene.wait_until_over()
    if name in OF_GROUPS:
        wait_until_consumed(scene, CONSUMED)


@pytest.mark.nightly
@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("version", VERSIONS)
def test_late_request_of_a_run_does_not_change_the_next_one(
    spark: SparkSession, clusters: dict[str, Any], topic_name: str, version: str, name: str
) -> None:
    """It arrives while the transaction of the next run is open (KAFKA-17754, KIP-890)."""
    proxy, cluster = started(clusters, version)
    scene = Scene(spark, cluster, topic_name)
    rows = scene.rows(ROWS)
    if name in OF_GROUPS:
        scene.plan = consume(scene, CONSUMED)
    with proxy.fault(name, Fault.IN_NEXT_RUN) as rule:
        assert scene.deliver(rows, request_timeout_ms="5000").records == ROWS
        assert scene.keys() == list(range(ROWS))
        if name in OF_GROUPS:
            scene.plan = consume(scene, 2 * CONSUMED)
        rule.release(before="Produce")
        deliver(scene, rows, name, rule.fault)
        assert rule.has_arrived
    assert scene.keys() == sorted([*range(ROWS), *range(ROWS)])
    scene.wait_until_over()
    if name in OF_GROUPS:
        wait_until_consumed(scene, 2 * CONSUMED)
