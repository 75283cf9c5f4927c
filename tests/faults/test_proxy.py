"""Requests of a transaction that are lost, late or repeated on real brokers: records are visible once, or the run failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import TopicPartition
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import DeliveryError
from dbt.adapters.upsert_kafka.kafka_client.internals import stable_group_offsets
from dbt.adapters.upsert_kafka.sinks import GroupCommit, TransactionPlan
from tests.faults.conftest import SWIFT
from tests.faults.proxy import Fault, Proxy, proxied_cluster
from tests.faults.scene import Scene, wait_for
from tests.faults.versions import VERSIONS
from tests.services import Cluster

ROWS, CONSUMED = 200, 7
REQUESTS = ("InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
OF_GROUPS = ("AddOffsetsToTxn", "TxnOffsetCommit")
# A second InitProducerId takes the transactional id away from the run that sent the first.
FENCING = [("InitProducerId", Fault.LATE), ("InitProducerId", Fault.REPEATED)]
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
        clusters[version] = context.__enter__()
    return clusters[version]


@pytest.mark.parametrize(("version", "name", "fault"), CASES)
def test_records_are_visible_once_or_not_at_all(
    spark: SparkSession, clusters: dict[str, Any], topic_name: str, version: str, name: str, fault: Fault
) -> None:
    proxy, cluster = started(clusters, version)
    scene = Scene(spark, cluster, topic_name)
    rows = scene.rows(ROWS)
    # Any topic that exists will do as the source.
    consumed = TopicPartition(topic_name, 0)
    if name in OF_GROUPS:
        scene.plan = TransactionPlan(groups=(GroupCommit("source", topic_name, {}, {consumed: CONSUMED}, is_empty=False),))
    with proxy.fault(name, fault) as rule:
        try:
            assert scene.deliver(rows, request_timeout_ms="5000").records == ROWS
        except DeliveryError as error:
            assert (name, fault) in FENCING, error
            assert "a newer run of the same model" in str(error)
            assert scene.records() == []
            scene.deliver(rows)
        assert rule.is_used
    assert scene.keys() == list(range(ROWS))
    scene.wait_until_over()
    if name in OF_GROUPS:
        wait_for(
            lambda: stable_group_offsets(scene.admin, topic_name, [consumed])[consumed].offset == CONSUMED, "the group's offset"
        )
