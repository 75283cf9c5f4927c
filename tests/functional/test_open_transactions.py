"""Transactions of others that are open when a run begins: another owner's is left alone, and any other is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import GuardError, UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import open_transactions
from dbt.adapters.upsert_kafka.sinks.transaction import Transaction
from tests.functional.streams import StreamTable
from tests.services import end_offsets
from tests.tables import Table, json_key, json_value

EXACTLY_ONCE = {"sink_delivery_guarantee": "exactly-once"}
PREFIX = "sink_transactional_id_prefix"


def table_of(spark: SparkSession, broker: str, topic: str, schema: str, folder: Path) -> tuple[Table, Callable[[], Any]]:
    table = Table(spark, broker, topic, schema)
    return table, lambda: table.publish([(1, "new")])


def events_of(spark: SparkSession, broker: str, topic: str, schema: str, folder: Path) -> tuple[Table, Callable[[], Any]]:
    table = Table(spark, broker, topic, schema)
    table.materialization, table.options = "kafka", {}
    return table, lambda: table.publish([(1, "new")])


def stream_of(spark: SparkSession, broker: str, topic: str, schema: str, folder: Path) -> tuple[Table, Callable[[], Any]]:
    stream = StreamTable(spark, broker, topic, schema, folder)
    stream.send([(1, "one")])
    return stream, stream.run


@pytest.mark.parametrize("make", [table_of, events_of, stream_of])
def test_refused_run_leaves_the_open_transaction_of_the_owner_alone(
    make: Any, spark: SparkSession, broker: str, topic_name: str, schema_name: str, tmp_path: Path
) -> None:
    table, publish = make(spark, broker, topic_name, schema_name, tmp_path)
    table.options |= EXACTLY_ONCE
    publish()
    owners = begun(broker, topic_name, "dbt-upsert-kafka")
    before = end_offsets(broker, topic_name)
    table.owner = replace(table.owner, environment="another")
    with pytest.raises(GuardError, match=r"is owned by .* the topic is untouched"):
        publish()
    assert end_offsets(broker, topic_name) == before
    # Fails if the refused run has taken the transactional id.
    owners.commit_transaction()
    owners.close()
    assert json_key(7) in table.latest()


def test_run_compares_with_what_a_run_with_another_prefix_has_not_committed_yet(
    spark: SparkSession, broker: str, topic_name: str, schema_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (Table(spark, broker, topic_name, f"{schema_name}_{name}") for name in "ab")
    b.owner = a.owner
    a.options |= EXACTLY_ONCE | {PREFIX: "of-a"}
    b.options |= EXACTLY_ONCE | {PREFIX: "of-b"}
    a.publish([(i, "old") for i in range(20)])
    rows_of_b = [(i, "old" if i < 10 else "of b") for i in range(20)]
    waits, write_state = Event(), Transaction.write_state

    def sleep(seconds: float) -> None:
        waits.set()
        time.sleep(seconds)

    monkeypatch.setattr(open_transactions, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    with ThreadPoolExecutor(1) as pool:
        runs: list[Any] = []

        def write_state_later(transaction: Transaction, *arguments: Any) -> None:
            if not runs:
                # This is a's transaction, whose records are written and not committed.
                runs.append(pool.submit(b.publish, rows_of_b))
                while not (waits.wait(0.1) or runs[0].done()):
                    pass
            write_state(transaction, *arguments)

        monkeypatch.setattr(Transaction, "write_state", write_state_later)
        assert a.publish([(i, "of a" if i < 10 else "old") for i in range(20)]).updated == 10
        assert runs[0].result().updated == 20
    assert b.view() == rows_of_b


def test_transaction_that_stays_open_is_named_and_nothing_is_written(
    table: Table, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_transactions, "HELD_BACK_SECONDS", 0.5)
    table.options |= EXACTLY_ONCE
    table.publish([(1, "old")])
    foreign = begun(broker, table.topic, "foreign")
    before = end_offsets(broker, table.topic)
    with pytest.raises(UpsertKafkaError, match=rf"transactional id 'foreign.{table.topic}' has been open .* Nothing was written"):
        table.publish([(1, "new")])
    assert end_offsets(broker, table.topic) == before
    foreign.abort_transaction()
    foreign.close()
    assert table.publish([(1, "new")]).updated == 1


def begun(broker: str, topic: str, prefix: str) -> KafkaProducer:
    """A producer with an open transaction that has a record."""
    producer = KafkaProducer(bootstrap_servers=broker, transactional_id=f"{prefix}.{topic}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, key=json_key(7), value=json_value((7, "of the owner")), partition=0).get(timeout=30)
    return producer
