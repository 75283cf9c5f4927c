"""Aborts and concurrent runs with each version of Kafka's transaction protocol: nothing is lost, no run is fenced by mistake."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from kafka import TopicPartition
from kafka.errors import InvalidProducerEpochError, ProducerFencedError
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.publish import guards
from dbt.adapters.upsert_kafka.sinks.protocol import EPOCH_PER_TRANSACTION, Client
from dbt.adapters.upsert_kafka.sinks.record_batch import Encoder, Producer, stamp
from dbt.adapters.upsert_kafka.sinks.writer import MAX_SEQUENCE, Writer
from dbt.adapters.upsert_kafka.state.record import Run
from tests.faults.conftest import SWIFT
from tests.faults.scene import Scene
from tests.faults.versions import DEFAULT, VERSIONS, nightly_unless
from tests.services import Cluster
from tests.tables import Table

MANY = 20_000
TIMEOUT_MS = 60_000
IN_MAKE_TEST = (DEFAULT, "4.1-transaction.version=1")
# The tests of what was wrong on 3.9.
FIXED_IN_MAKE_TEST = (*IN_MAKE_TEST, "3.9")
OTHERS = [name for name in VERSIONS if name != DEFAULT]
# test_transaction.py has the same test on 4.1.
on_other_versions = pytest.mark.parametrize("cluster", nightly_unless(FIXED_IN_MAKE_TEST, OTHERS), indirect=True)
on_each_version = pytest.mark.parametrize("cluster", nightly_unless(FIXED_IN_MAKE_TEST, VERSIONS), indirect=True)
# The version makes no difference after the first comparison.
mostly_nightly = pytest.mark.parametrize("cluster", nightly_unless([DEFAULT], VERSIONS), indirect=True)


@pytest.fixture(scope="module", params=nightly_unless(IN_MAKE_TEST, VERSIONS))
def cluster(request: pytest.FixtureRequest) -> Iterator[Any]:
    with VERSIONS[request.param](properties=SWIFT) as cluster:
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
    assert len(scene.records("read_uncommitted")) > MANY, "records of the first write, which was aborted"
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
    with pytest.raises((InvalidProducerEpochError, ProducerFencedError)):
        client.abort(older, TIMEOUT_MS, {scene.topic: [0]})
    client.commit(newer)


@pytest.mark.nightly
def test_run_that_opens_during_an_abort_is_not_aborted_with_transaction_version_2(scene: Scene, client: Client) -> None:
    """Before version 2 a newer run can get between the end of the older transaction and its next epoch."""
    older = client.open(scene.transactional_id, TIMEOUT_MS)
    client.add_partitions(older, scene.topic, [0])
    newer: list[Producer] = []
    end = client._end

    def opened_after(*arguments: Any, **named: Any) -> Any:
        answer = end(*arguments, **named)
        if not newer:
            newer.append(client.open(scene.transactional_id, TIMEOUT_MS))
            client.add_partitions(newer[0], scene.topic, [0])
        return answer

    client._end = opened_after  # type: ignore[method-assign]
    if client._transaction_version(scene.transactional_id) >= EPOCH_PER_TRANSACTION:
        client.abort(older, TIMEOUT_MS, {scene.topic: [0]})
        client.commit(newer[0])
        return
    with pytest.raises(InvalidProducerEpochError):
        client.abort(older, TIMEOUT_MS, {scene.topic: [0]})
    # The newer run fails. Nothing of it is visible, and the next one can publish.
    with pytest.raises(InvalidProducerEpochError):
        client.commit(newer[0])
    last = client.open(scene.transactional_id, TIMEOUT_MS)
    client.add_partitions(last, scene.topic, [0])
    client.commit(last)


@pytest.mark.nightly
def test_records_deleted_during_a_transaction_do_not_break_the_sequence(scene: Scene, client: Client) -> None:
    writer = opened_writer(scene, client)
    write_one(writer, b"1")
    scene.admin.delete_records({TopicPartition(scene.topic, 0): 1})
    write_one(writer, b"2")
    client.commit(writer._producer)
    scene.wait_until_over()
    assert scene.keys() == [2]


@pytest.mark.nightly
def test_sequence_numbers_restart_at_zero_after_the_last_one(scene: Scene, client: Client) -> None:
    writer = opened_writer(scene, client)
    # A broker accepts any sequence number as the first one.
    [state] = writer.partitions
    state.next_sequence = MAX_SEQUENCE
    for key in (b"1", b"2", b"3"):
        write_one(writer, key)
    assert state.next_sequence == 2
    client.commit(writer._producer)
    scene.wait_until_over()
    assert scene.keys() == [1, 2, 3]


def opened_writer(scene: Scene, client: Client) -> Writer:
    client.manager.cluster.add_topic(scene.topic)
    writer = Writer(client, client.open(scene.transactional_id, TIMEOUT_MS), scene.topic)
    writer.add_partitions([0])
    return writer


def write_one(writer: Writer, key: bytes) -> None:
    batch = Encoder("none").encode(int(time.time() * 1000), pa.array([key]), pa.array([b"value"]), None)
    writer.write(0, 1, stamp(batch, writer._producer, writer.next_sequence(0)))
    writer.flush()


@on_each_version
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
