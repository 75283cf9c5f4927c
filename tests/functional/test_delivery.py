"""Delivery as a model asks for it: every guarantee makes the topic equal to the SELECT, and keys are where the model wants."""

from __future__ import annotations

import time

import pytest
from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.errors import DeliveryError, OptionsError
from tests.tables import Table, json_key

GUARANTEES = ["none", "at-least-once", "exactly-once"]
# Where Java's producer puts {"id":0} to {"id":7} in five partitions.
JAVA_PLACES = [0, 1, 4, 1, 2, 4, 1, 2]
every_guarantee = pytest.mark.parametrize("guarantee", GUARANTEES)


def by_first_letter(key: bytes, value: bytes | None, partitions: int) -> int:
    return int(b'"id":1' in key) + 7 * int(b'"id":3' in key)


@every_guarantee
def test_topic_is_equal_to_the_select_after_every_run(table: Table, guarantee: str) -> None:
    table.options["sink_delivery_guarantee"] = guarantee
    for rows in ([(i, "a") for i in range(20)], [(i, "b" if i % 2 else "a") for i in range(10)], [(3, None), (99, "x")]):
        table.publish(rows)
        assert table.view() == sorted(rows)
    unchanged = table.publish([(3, None), (99, "x")])
    assert (unchanged.unchanged, unchanged.records, unchanged.delivery) == (2, 0, "")


@every_guarantee
def test_a_run_tells_how_it_delivered(table: Table, guarantee: str) -> None:
    told = table.publish([(i, "a") for i in range(20)], sink_delivery_guarantee=guarantee)
    assert (told.delivery, told.records) == (guarantee, 20)
    assert (told.transactional_id, bool(told.bytes)) == (
        (f"dbt-upsert-kafka.{table.topic}", True) if guarantee == "exactly-once" else (None, False)
    )
    if guarantee != "none":  # whose producer does not wait until it is written
        assert told.partitions_written == 2
        assert told.offsets is not None and sum(last - first + 1 for first, last in told.offsets.values()) == 20


def test_a_transaction_of_many_batches_is_written_once(table: Table) -> None:
    """A first batch that waits for its partition's leader must not be overtaken: the write would be aborted and repeated."""
    # Three batches in each of four partitions by each of two tasks: the first of a partition wait while those of another go on.
    rows, table.partitions = 560, 4
    table.publish(
        f"SELECT CAST(id AS INT) AS id, repeat('x', 100) AS name FROM range({rows})",
        sink_delivery_guarantee="exactly-once",
        properties={"batch.size": "4096", "compression.type": "none"},
    )
    assert sum(table.end().values()) == rows + table.partitions, "a marker in each"


def test_transactional_id_begins_as_asked(table: Table) -> None:
    told = table.publish([(1, "a")], sink_delivery_guarantee="exactly-once", sink_transactional_id_prefix="mine")
    assert told.transactional_id == f"mine.{table.topic}"


@every_guarantee
def test_headers_are_in_every_record_and_null_ones_are_left_out(table: Table, guarantee: str) -> None:
    headers = {"origin": "'shop'", "name": "name"}
    table.publish([(1, "ann"), (2, None)], sink_delivery_guarantee=guarantee, headers=headers)
    found = {record.key: dict(record.headers) for record in table.records()}
    assert found == {b'{"id":1}': {"origin": b"shop", "name": b"ann"}, b'{"id":2}': {"origin": b"shop"}}


def test_record_has_the_time_that_the_model_gives_it(table: Table) -> None:
    table.options |= {"sink_delivery_guarantee": "exactly-once", "record_timestamp": "at", "exclude_columns": ["at"]}
    started = time.time() * 1000
    select = "SELECT id, 'a' AS name, timestamp_millis(at) AS at FROM VALUES (1, 1700000000123), (2, 0), (3, NULL) AS t(id, at)"
    table.publish(select)
    times = {record.key: record.timestamp for record in table.records()}
    assert (times[json_key(1)], times[json_key(2)]) == (1700000000123, 0)
    assert times[json_key(3)] >= started
    assert table.view() == [(1, "a"), (2, "a"), (3, "a")]
    before = table.end()
    # The time alone is no change; a tombstone has no row that could give it one.
    table.publish("SELECT id, 'a' AS name, timestamp_millis(7) AS at FROM VALUES (1), (2) AS t(id)")
    [tombstone] = table.new_records(before)
    assert (tombstone.key, tombstone.value) == (json_key(3), None) and tombstone.timestamp >= started


def test_time_that_no_record_can_have_is_refused_before_anything_is_written(table: Table) -> None:
    table.options |= {"sink_delivery_guarantee": "exactly-once", "exclude_columns": ["at"]}
    with pytest.raises(OptionsError, match=r"record_timestamp='at' is a date: it must be a timestamp; cast it"):
        table.publish("SELECT 1 AS id, current_date() AS at", record_timestamp="at")
    with pytest.raises(Exception, match=r"record_timestamp='at' is before 1970, which Kafka can't carry: 1969-12-31 23:59:59"):
        table.publish("SELECT 1 AS id, timestamp '1969-12-31 23:59:59Z' AS at", record_timestamp="at")


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_retraction_stands_before_the_new_value_of_its_key(table: Table, guarantee: str) -> None:
    table.options |= {"sink_delivery_guarantee": guarantee, "update_mode": "retract"}
    table.publish([(i, "old") for i in range(50)])
    before = table.end()
    assert table.publish([(i, "new") for i in range(50)]).records == 100
    seen: dict[bytes | None, list[bytes | None]] = {}
    for record in table.new_records(before):
        seen.setdefault(record.key, []).append(record.value and record.value[-5:])
    assert len(seen) == 50 and {tuple(values) for values in seen.values()} == {(None, b'new"}')}


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_default_partitioner_is_the_same_for_every_guarantee(table: Table, guarantee: str) -> None:
    table.partitions = 5
    table.publish([(i, "a") for i in range(200)], sink_delivery_guarantee=guarantee)
    placed = {record.key: record.partition for record in table.records()}
    assert [placed[b'{"id":%d}' % i] for i in range(8)] == JAVA_PLACES


@every_guarantee
@pytest.mark.parametrize("partitioner", ["default", "fixed", "round-robin"])
def test_keys_stay_where_they_are_after_partitions_were_added(table: Table, guarantee: str, partitioner: str) -> None:
    table.options |= {"sink_delivery_guarantee": guarantee, "sink_partitioner": partitioner}
    table.publish([(i, "a") for i in range(30)])
    before = {record.key: record.partition for record in table.records()}
    admin = KafkaAdminClient(bootstrap_servers=table.broker)
    admin.create_partitions({table.topic: 5})
    admin.close()
    table.publish([(i, "b") for i in range(90)])
    places: dict[bytes | None, set[int]] = {}
    for record in table.records():
        places.setdefault(record.key, set()).add(record.partition)
    assert {key: {partition} for key, partition in before.items()}.items() <= places.items()
    assert all(len(found) == 1 for found in places.values())
    assert table.view() == [(i, "b") for i in range(90)]


def test_custom_partitioner_of_the_model_is_asked_for_new_keys(table: Table) -> None:
    table.publish([(1, "a"), (2, "b")], sink_partitioner=f"{__name__}.by_first_letter")
    assert {record.key: record.partition for record in table.records()} == {b'{"id":1}': 1, b'{"id":2}': 0}


@every_guarantee
def test_custom_partitioner_that_is_wrong_writes_nothing(table: Table, guarantee: str) -> None:
    table.publish([(1, "a")], sink_delivery_guarantee=guarantee)
    before = table.end()
    with pytest.raises(
        DeliveryError, match=r'answered 7 for key b\'{"id":3}\': the topic has partitions 0 to 1. Nothing was written'
    ):
        table.publish(
            [(i, "b") for i in range(1, 9)], sink_delivery_guarantee=guarantee, sink_partitioner=f"{__name__}.by_first_letter"
        )
    with pytest.raises(OptionsError, match=r"'no.such' can't be imported"):
        table.publish([(1, "c")], sink_delivery_guarantee=guarantee, sink_partitioner="no.such")
    assert table.end() == before


@every_guarantee
def test_number_of_tasks_that_write_may_be_set(table: Table, guarantee: str) -> None:
    rows = [(i, "a") for i in range(30)]
    table.publish(rows, sink_delivery_guarantee=guarantee, sink_parallelism=1)
    assert table.view() == rows
