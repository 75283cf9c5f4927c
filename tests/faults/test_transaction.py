"""Writes under faults: whatever dies or hangs, nothing is lost; exactly-once, readers see all of a run or nothing."""

from __future__ import annotations

import os
import signal

import pytest
from kafka.admin._transactions import TransactionState

from dbt.adapters.upsert_kafka.errors import DeliveryError
from dbt.adapters.upsert_kafka.sinks.protocol import Client
from tests.faults.scene import Scene, python_workers, stopped, wait_for
from tests.faults.test_refusals import both

MANY = 20_000


def test_readers_see_nothing_before_the_commit_and_everything_after(scene: Scene) -> None:
    with scene.delivering(scene.rows(MANY)) as delivery:
        with stopped(*python_workers()):
            assert scene.transaction() == TransactionState.ONGOING
            assert scene.records() == []
            assert scene.records("read_uncommitted") != []
        scene.go_on()
        result = delivery.result()
    assert scene.keys() == list(range(MANY))
    assert result.records == MANY and result.bytes and result.transactional_id == scene.transactional_id
    assert result.offsets is not None and sum(last - first + 1 for first, last in result.offsets.values()) == MANY
    scene.wait_until_over()


def test_nothing_to_write_opens_no_transaction(scene: Scene) -> None:
    assert scene.deliver(scene.rows(0)).records == 0
    assert scene.transaction() == TransactionState.EMPTY
    assert scene.written() == 0


def test_few_records_touch_only_their_partitions(scene: Scene) -> None:
    result = scene.deliver(scene.rows(1))
    assert result.offsets is not None and list(result.offsets.values()) == [(0, 0)]
    assert scene.written() == 2  # the record and the marker of its commit


def test_killed_python_worker_makes_the_write_start_again(scene: Scene) -> None:
    with scene.delivering(scene.rows(MANY)) as delivery:
        os.kill(scene.writers()[0], signal.SIGKILL)
        scene.go_on()
        delivery.result()
    assert scene.keys() == list(range(MANY))
    assert len(scene.records("read_uncommitted")) >= MANY
    scene.wait_until_over()


@both
def test_killed_and_restarted_broker_loses_and_doubles_nothing(scene: Scene, guarantee: str) -> None:
    [broker] = scene.cluster.brokers
    with scene.delivering(scene.rows(MANY), guarantee) as delivery:
        with stopped(*python_workers()):
            broker.kill()
        broker.start()
        scene.go_on()
        delivery.result()
    assert scene.keys() == list(range(MANY))
    scene.wait_until_over()


@both
def test_broker_that_hangs_longer_than_the_request_timeout_loses_and_doubles_nothing(scene: Scene, guarantee: str) -> None:
    [broker] = scene.cluster.brokers
    with scene.delivering(scene.rows(MANY), guarantee, request_timeout_ms="2000") as delivery:
        with stopped(broker.pid), pytest.raises(TimeoutError):
            # Longer than one request's time, so that the same batches are sent again over new connections.
            delivery.result(timeout=6)
        scene.go_on()
        delivery.result()
    assert scene.keys() == list(range(MANY))
    scene.wait_until_over()


def test_newer_run_fences_the_older_one(scene: Scene) -> None:
    with scene.delivering(scene.rows(MANY)) as delivery:
        with stopped(*python_workers()), Client({"bootstrap_servers": scene.cluster.bootstrap_servers}, 30) as newer:
            identity = newer.open(scene.transactional_id, 60_000)
        scene.go_on()
        with pytest.raises(DeliveryError, match=r"a newer run of the same model .* Nothing of this run is visible"):
            delivery.result()
    assert scene.records() == []
    scene.wait_until_over()
    # The older one's abort left the newer one alone.
    assert scene.admin.describe_transactions([scene.transactional_id])[scene.transactional_id].producer_epoch == identity.epoch


def test_write_that_takes_longer_than_its_timeout_is_told(scene: Scene) -> None:
    with scene.delivering(scene.rows(MANY), transaction_timeout_ms="1000") as delivery:
        with stopped(*python_workers()):
            wait_for(lambda: scene.transaction() == TransactionState.COMPLETE_ABORT, "the broker's abort")
        scene.go_on()
        with pytest.raises(DeliveryError, match=r"longer than transaction.timeout.ms=1000, .* Nothing of this run is visible"):
            delivery.result()
    assert scene.records() == []


def test_timeout_above_the_brokers_maximum_is_told_before_anything_is_written(scene: Scene) -> None:
    with pytest.raises(DeliveryError, match=r"transaction.timeout.ms=9000000 .* transaction.max.timeout.ms=900000. Nothing was"):
        scene.deliver(scene.rows(10), transaction_timeout_ms="9000000")
    assert scene.written() == 0


def test_cancelled_write_is_aborted(scene: Scene) -> None:
    with scene.delivering(scene.rows(MANY)) as delivery:
        scene.spark.sparkContext.cancelAllJobs()
        scene.go_on()
        with pytest.raises(DeliveryError, match=r"the write was cancelled. Nothing of this run is visible"):
            delivery.result()
    assert scene.records() == []
    scene.wait_until_over()
