"""Delivery options of a model: guarantees, compression, headers, timestamps and partitioners."""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner
from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.cli import main
from dbt.adapters.upsert_kafka.errors import DeliveryError, OptionsError
from tests.tables import Table, json_key

GUARANTEES = ["none", "at-least-once", "exactly-once"]
# The partitions that the Java producer chooses for {"id":0} to {"id":7}, of five.
JAVA_PARTITIONS = [0, 1, 4, 1, 2, 4, 1, 2]
every_guarantee = pytest.mark.parametrize("guarantee", GUARANTEES)


def by_first_letter(key: bytes, value: bytes | None, partitions: int) -> int:
    return int(b'"id":1' in key) + 7 * int(b'"id":3' in key)


@every_guarantee
def test_topic_equals_the_select_after_every_run(table: Table, guarantee: str) -> None:
    table.options["sink_delivery_guarantee"] = guarantee
    for rows in ([(i, "a") for i in range(20)], [(i, "b" if i % 2 else "a") for i in range(10)], [(3, None), (99, "x")]):
        table.publish(rows)
        assert table.view() == sorted(rows)
    unchanged = table.publish([(3, None), (99, "x")])
    assert (unchanged.unchanged, unchanged.records, unchanged.delivery) == (2, 0, "")


@every_guarantee
def test_result_reports_guarantee_and_offsets(table: Table, guarantee: str) -> None:
    result = table.publish([(i, "a") for i in range(20)], sink_delivery_guarantee=guarantee)
    assert (result.delivery, result.records) == (guarantee, 20)
    assert (result.transactional_id, bool(result.bytes)) == (
        (f"dbt-upsert-kafka.{table.topic}", True) if guarantee == "exactly-once" else (None, False)
    )
    if guarantee != "none":  # with `none`, the producer does not wait until records are written
        assert result.partitions_written == 2
        assert result.offsets is not None and sum(last - first + 1 for first, last in result.offsets.values()) == 20


def test_transaction_of_many_batches_is_not_repeated(table: Table) -> None:
    """If a later batch overtook the first one of a partition, the write would be aborted and repeated."""
    # Two tasks write three batches to each of four partitions. First batches wait while those of other partitions are sent.
    rows, table.partitions = 560, 4
    table.publish(
        f"SELECT CAST(id AS INT) AS id, repeat('x', 100) AS name FROM range({rows})",
        sink_delivery_guarantee="exactly-once",
        properties={"batch.size": "4096", "compression.type": "none"},
    )
    assert sum(table.end().values()) == rows + table.partitions, "one commit marker in each partition"


def test_transactional_id_has_the_given_prefix(table: Table) -> None:
    result = table.publish([(1, "a")], sink_delivery_guarantee="exactly-once", sink_transactional_id_prefix="mine")
    assert result.transactional_id == f"mine.{table.topic}"


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_java_consumer_decompresses_a_transaction(table: Table, compression: str) -> None:
    # Batches of 300 KB, so that snappy (32 KB) and lz4 (64 KB) write several blocks.
    rows, name = 2_000, "concat(repeat(md5(string(id)), 8), id)"
    result = table.publish(
        f"SELECT CAST(id AS INT) AS id, {name} AS name FROM range({rows})",
        sink_delivery_guarantee="exactly-once",
        properties={"compression.type": compression},
    )
    # Spark's Kafka source uses Kafka's Java consumer: neither our code nor kafka-python decodes these records.
    options = {"kafka.bootstrap.servers": table.broker, "kafka.isolation.level": "read_committed", "startingOffsets": "earliest"}
    records = table.spark.read.format("kafka").options(**options, subscribe=table.topic).load()
    fields = "from_json(string(value), 'id INT, name STRING')"
    found = records.selectExpr("string(key) AS key", f"{fields}.id AS id", f"{fields}.name AS name")
    matching = found.filter(f"key = concat('{{\"id\":', id, '}}') AND name = {name}")
    assert (found.count(), matching.select("id").distinct().count()) == (rows, rows)
    assert result.records == rows and result.bytes < rows * 256 / 4, "the batches are compressed"


def test_cli_reports_a_codec_that_kafka_python_cannot_read(table: Table) -> None:
    """kafka-python needs another package for snappy. Writing does not: pyarrow has it."""
    table.publish(
        [(i, "a" * 100) for i in range(100)], sink_delivery_guarantee="exactly-once", properties={"compression.type": "snappy"}
    )
    outcome = CliRunner().invoke(main, ["topic", table.topic, "--bootstrap-servers", table.broker])
    assert outcome.exit_code == 1
    assert f"Topic '{table.topic}' cannot be read: " in outcome.output
    assert "Libraries for snappy" in outcome.output


@every_guarantee
def test_records_have_all_headers_but_null_ones(table: Table, guarantee: str) -> None:
    headers = {"origin": "'shop'", "name": "name"}
    table.publish([(1, "ann"), (2, None)], sink_delivery_guarantee=guarantee, headers=headers)
    found = {record.key: dict(record.headers) for record in table.records()}
    assert found == {b'{"id":1}': {"origin": b"shop", "name": b"ann"}, b'{"id":2}': {"origin": b"shop"}}


def test_record_timestamp_sets_the_timestamp_of_records(table: Table) -> None:
    table.options |= {"sink_delivery_guarantee": "exactly-once", "record_timestamp": "at", "exclude_columns": ["at"]}
    started = time.time() * 1000
    select = "SELECT id, 'a' AS name, timestamp_millis(at) AS at FROM VALUES (1, 1700000000123), (2, 0), (3, NULL) AS t(id, at)"
    table.publish(select)
    times = {record.key: record.timestamp for record in table.records()}
    assert (times[json_key(1)], times[json_key(2)]) == (1700000000123, 0)
    assert times[json_key(3)] >= started
    assert table.view() == [(1, "a"), (2, "a"), (3, "a")]
    before = table.end()
    # Another timestamp alone is not a change. A tombstone has no row, so it gets the current time.
    table.publish("SELECT id, 'a' AS name, timestamp_millis(7) AS at FROM VALUES (1), (2) AS t(id)")
    [tombstone] = table.new_records(before)
    assert (tombstone.key, tombstone.value) == (json_key(3), None) and tombstone.timestamp >= started


def test_invalid_record_timestamp_is_refused(table: Table) -> None:
    table.options |= {"sink_delivery_guarantee": "exactly-once", "exclude_columns": ["at"]}
    with pytest.raises(OptionsError, match=r"record_timestamp='at' has type date; cast it to timestamp"):
        table.publish("SELECT 1 AS id, current_date() AS at", record_timestamp="at")
    with pytest.raises(
        Exception, match=r"record_timestamp='at' is before 1970, which Kafka does not support: 1969-12-31 23:59:59"
    ):
        table.publish("SELECT 1 AS id, timestamp '1969-12-31 23:59:59Z' AS at", record_timestamp="at")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_retraction_precedes_the_new_value_of_its_key(table: Table, guarantee: str) -> None:
    table.options |= {"sink_delivery_guarantee": guarantee, "update_mode": "retract"}
    table.publish([(i, "old") for i in range(50)])
    before = table.end()
    assert table.publish([(i, "new") for i in range(50)]).records == 100
    seen: dict[bytes | None, list[bytes | None]] = {}
    for record in table.new_records(before):
        seen.setdefault(record.key, []).append(record.value and record.value[-5:])
    assert len(seen) == 50 and {tuple(values) for values in seen.values()} == {(None, b'new"}')}


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_default_partitioner_is_that_of_the_java_producer(table: Table, guarantee: str) -> None:
    table.partitions = 5
    table.publish([(i, "a") for i in range(200)], sink_delivery_guarantee=guarantee)
    partitions = {record.key: record.partition for record in table.records()}
    assert [partitions[b'{"id":%d}' % i] for i in range(8)] == JAVA_PARTITIONS


@every_guarantee
@pytest.mark.parametrize("partitioner", ["default", "fixed", "round-robin"])
def test_keys_keep_their_partition_after_partitions_are_added(table: Table, guarantee: str, partitioner: str) -> None:
    table.options |= {"sink_delivery_guarantee": guarantee, "sink_partitioner": partitioner}
    table.publish([(i, "a") for i in range(30)])
    before = {record.key: record.partition for record in table.records()}
    admin = KafkaAdminClient(bootstrap_servers=table.broker)
    admin.create_partitions({table.topic: 5})
    admin.close()
    table.publish([(i, "b") for i in range(90)])
    partitions: dict[bytes | None, set[int]] = {}
    for record in table.records():
        partitions.setdefault(record.key, set()).add(record.partition)
    assert {key: {partition} for key, partition in before.items()}.items() <= partitions.items()
    assert all(len(found) == 1 for found in partitions.values())
    assert table.view() == [(i, "b") for i in range(90)]


def test_custom_partitioner_decides_for_new_keys(table: Table) -> None:
    table.publish([(1, "a"), (2, "b")], sink_partitioner=f"{__name__}.by_first_letter")
    assert {record.key: record.partition for record in table.records()} == {b'{"id":1}': 1, b'{"id":2}': 0}


@every_guarantee
def test_failing_custom_partitioner_writes_nothing(table: Table, guarantee: str) -> None:
    table.publish([(1, "a")], sink_delivery_guarantee=guarantee)
    before = table.end()
    with pytest.raises(
        DeliveryError, match=r'returned 7 for key b\'{"id":3}\': the topic has partitions 0 to 1. Nothing was written'
    ):
        table.publish(
            [(i, "b") for i in range(1, 9)], sink_delivery_guarantee=guarantee, sink_partitioner=f"{__name__}.by_first_letter"
        )
    with pytest.raises(OptionsError, match=r"'no.such' can't be imported"):
        table.publish([(1, "c")], sink_delivery_guarantee=guarantee, sink_partitioner="no.such")
    assert table.end() == before


@every_guarantee
def test_sink_parallelism_of_one_writes_all_rows(table: Table, guarantee: str) -> None:
    rows = [(i, "a") for i in range(30)]
    table.publish(rows, sink_delivery_guarantee=guarantee, sink_parallelism=1)
    assert table.view() == rows
