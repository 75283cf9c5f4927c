"""Faults during a write: nothing is lost, and with exactly-once readers see all records of a run or none."""

from __future__ import annotations

import os
import signal

import pytest
from kafka.admin import TransactionState

from dbt.adapters.upsert_kafka.errors import DeliveryError
from dbt.adapters.upsert_kafka.sinks.protocol import Client
from tests.faults.scene import Scene, python_workers, stopped, wait_for

MANY = 20_000
# With at-least-once these are tests of Spark's own sink, which rarely breaks.
both = pytest.mark.parametrize("guarantee", ["exactly-once", pytest.param("at-least-once", marks=pytest.mark.nightly)])


def test_readers_see_no_record_before_the_commit_and_all_after_it(scene: Scene) -> None:
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


def test_delivery_without_records_starts_no_transaction(scene: Scene) -> None:
    assert scene.deliver(scene.rows(0)).records == 0
    assert scene.transaction() == TransactionState.EMPTY
    assert scene.written() == 0


def test_partitions_without_records_are_not_in_the_transaction(scene: Scene) -> None:
    result = scene.deliver(scene.rows(1))
    assert result.offsets is not None and list(result.offsets.values()) == [(0, 0)]
    assert scene.written() == 2  # the record and the commit marker


def test_write_is_repeated_after_a_python_worker_was_killed(scene: Scene) -> None:
    with scene.delivering(scene.rows(MANY)) as delivery:
        os.kill(scene.writers()[0], signal.SIGKILL)
        scene.go_on()
        delivery.result()
    assert scene.keys() == list(range(MANY))
    assert len(scene.records("read_uncommitted")) > MANY, "records of the first write, which was aborted"
    scene.wait_until_over()


@both
def test_restart_of_a_killed_broker_causes_no_loss_and_no_duplicates(scene: Scene, guarantee: str) -> None:
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
def test_hanging_broker_causes_no_loss_and_no_duplicates(scene: Scene, guarantee: str) -> None:
    [broker] = scene.cluster.brokers
    with scene.delivering(scene.rows(MANY), guarantee, request_timeout_ms="2000") as delivery:
        with stopped(broker.pid), pytest.raises(TimeoutError):
            # Longer than the request timeout, so that the same batches are sent again on new connections.
            delivery.result(timeout=6)
        scene.go_on()
        delivery.result()
    assert scene.keys() == list(range(MANY))
    scene.wait_until_over()


def test_newer_run_fences_the_older_run(scene: Scene) -> None:
    with scene.delivering(scene.rows(MANY)) as delivery:
        with stopped(*python_workers()), Client({"bootstrap_servers": scene.cluster.bootstrap_servers}, 30) as newer:
            identity = newer.open(scene.transactional_id, 60_000)
        scene.go_on()
        with pytest.raises(DeliveryError, match=r"a newer run of the same model .* Nothing of this run is visible"):
            delivery.result()
    assert scene.records() == []
    scene.wait_until_over()
    # The abort of the older run did not fence the newer one.
    assert scene.admin.describe_transactions([scene.transactional_id])[scene.transactional_id].producer_epoch == identity.epoch


def test_write_that_exceeds_the_transaction_timeout_is_reported(scene: Scene) -> None:
    with scene.delivering(scene.rows(MANY), transaction_timeout_ms="1000") as delivery:
        with stopped(*python_workers()):
            wait_for(lambda: scene.transaction() == TransactionState.COMPLETE_ABORT, "the broker's abort")
        scene.go_on()
        with pytest.raises(DeliveryError, match=r"longer than transaction.timeout.ms=1000, .* Nothing of this run is visible"):
            delivery.result()
    assert scene.records() == []


def test_transaction_timeout_above_the_maximum_is_refused_before_the_write(scene: Scene) -> None:
    with pytest.raises(DeliveryError, match=r"transaction.timeout.ms=9000000 .* transaction.max.timeout.ms=900000. Nothing was"):
        scene.deliver(scene.rows(10), transaction_timeout_ms="9000000")
    assert scene.written() == 0


def test_cancelled_job_aborts_the_transaction(scene: Scene) -> None:
    with scene.delivering(scene.rows(MANY)) as delivery:
        scene.spark.sparkContext.cancelAllJobs()
        scene.go_on()
        with pytest.raises(DeliveryError, match=r"the write was cancelled. Nothing of this run is visible"):
            delivery.result()
    assert scene.records() == []
    scene.wait_until_over()
