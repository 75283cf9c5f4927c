"""Aborts and concurrent runs with each version of Kafka's transaction protocol: nothing is lost, no run is fenced by mistake."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.errors import InvalidProducerEpochError
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.publish import guards
from dbt.adapters.upsert_kafka.sinks.protocol import Client
from dbt.adapters.upsert_kafka.state.record import Run
from tests.faults.conftest import SWIFT
from tests.faults.scene import Scene
from tests.services import Cluster
from tests.tables import Table

MANY = 20_000
TIMEOUT_MS = 60_000
VERSIONS: dict[str, dict[str, Any]] = {
    # Kafka 4.1 with its default, transaction.version=2.
    "4.1": {},
    "4.1-transaction.version=1": {"features": {"transaction.version": 1}},
    "3.9": {"version": "3.9.1"},
}


OTHERS = [name for name in VERSIONS if name != "4.1"]
# test_transaction.py has the same test on 4.1.
on_other_versions = pytest.mark.parametrize("cluster", OTHERS, indirect=True)
# The version makes no difference after the first comparison.
mostly_nightly = pytest.mark.parametrize(
    "cluster", ["4.1", *(pytest.param(name, marks=pytest.mark.nightly) for name in OTHERS)], indirect=True
)


@pytest.fixture(scope="module", params=list(VERSIONS))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(properties=SWIFT, **VERSIONS[request.param]) as cluster:
        yield cluster


@pytest.fixture
def scene(spark: SparkSession, cluster: Cluster, topic_name: str) -> Scene:
    return Scene(spark, cluster, topic_name)


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client({"bootstrap_servers": cluster.bootstrap_servers}, 60) as client:
        yield client


@pytest.fixture
def table(spark: SparkSession, cluster: Cluster, topic_name: str, schema_name: str) -> Table:
    table = Table(spark, cluster.bootstrap_servers, topic_name, schema_name)
    table.options["sink_delivery_guarantee"] = "exactly-once"
    return table


@on_other_versions
def test_write_is_repeated_after_a_python_worker_was_killed_on_other_versions(scene: Scene) -> None:
    with scene.delivering(scene.rows(MANY)) as delivery:
        os.kill(scene.writers()[0], signal.SIGKILL)
        scene.go_on()
        delivery.result()
    assert scene.keys() == list(range(MANY))
    scene.wait_until_over()


def test_abort_ends_the_transaction_and_gives_the_next_epoch(scene: Scene, client: Client) -> None:
    first = client.open(scene.transactional_id, TIMEOUT_MS)
    client.add_partitions(first, scene.topic, [0])
    second = client.abort(first, TIMEOUT_MS, {scene.topic: [0, 1]})
    assert (second.producer_id, second.epoch) > (first.producer_id, first.epoch)
    # The late request of a task of the first transaction.
    with pytest.raises(InvalidProducerEpochError):
        client.add_partitions(first, scene.topic, [1])
    client.add_partitions(second, scene.topic, [1])
    client.commit(second)
    scene.wait_until_over()


def test_abort_of_an_empty_transaction_is_not_taken_for_fencing(scene: Scene, client: Client) -> None:
    first = client.open(scene.transactional_id, TIMEOUT_MS)
    second = client.abort(first, TIMEOUT_MS, {scene.topic: [0, 1]})
    client.add_partitions(second, scene.topic, [0])
    client.commit(second)


def test_fenced_run_does_not_abort_the_transaction_of_the_newer_run(scene: Scene, client: Client) -> None:
    older = client.open(scene.transactional_id, TIMEOUT_MS)
    client.add_partitions(older, scene.topic, [0])
    newer = client.open(scene.transactional_id, TIMEOUT_MS)
    client.add_partitions(newer, scene.topic, [0])
    with pytest.raises(InvalidProducerEpochError):
        client.abort(older, TIMEOUT_MS, {scene.topic: [0]})
    client.commit(newer)


def test_run_that_committed_between_comparison_and_write_is_not_overwritten(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.publish([(i, "old") for i in range(20)])
    publish_between(table, monkeypatch, [[(i, "other" if i < 10 else "old") for i in range(20)]])
    # This run compared with the old rows, among which the first ten are equal to its own.
    assert table.publish([(i, "old" if i < 10 else "new") for i in range(20)]).updated == 20
    assert table.view() == [(i, "old" if i < 10 else "new") for i in range(20)]


@mostly_nightly
def test_run_that_never_finds_the_topic_as_it_compared_names_the_other_run(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.publish([(1, "old")])
    others = [[(1, f"other {i}")] for i in range(3)]
    publish_between(table, monkeypatch, others)
    with pytest.raises(GuardError, match=r"another run \(invocation other on elsewhere, started .* each of 3 comparisons"):
        table.publish([(1, "new")])
    assert table.view() == [(1, "other 2")] and not others


def publish_between(table: Table, monkeypatch: pytest.MonkeyPatch, others: list[list[tuple[int, str]]]) -> None:
    """Let another run publish after each comparison of the next run, as long as there are rows."""
    check = guards.check

    def checked(*arguments: Any) -> list[str]:
        result = check(*arguments)
        if others:
            rows = others.pop(0)
            with monkeypatch.context() as alone:
                alone.setattr(guards, "check", check)
                table.publish(rows, run=Run("other", "elsewhere", "2026-11-18"))
        return result

    monkeypatch.setattr(guards, "check", checked)
