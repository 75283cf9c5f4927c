"""Cases that ended with exit code 0 and a wrong topic. Contents are read by an independent client."""

from __future__ import annotations

from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.publish import buckets, snapshots
from tests.counts import counts
from tests.services import read_topic
from tests.tables import Table, json_key, json_value

ANN, BOB, CEM = (1, "ann"), (2, "bob"), (3, "cem")
RAW: dict[str, Any] = {"key_format": "raw", "value_format": "raw", "value_fields_include": "EXCEPT_KEY"}


class RawTable(Table):
    """A `kafka` model whose value is one column."""

    materialization = "kafka"
    columns = "id string, name string"

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.options = {"unique_key": "id", **RAW}


@pytest.fixture
def raw_table(spark: SparkSession, broker: str, topic_name: str, schema_name: str) -> RawTable:
    return RawTable(spark, broker, topic_name, schema_name)


@pytest.fixture
def small_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is large enough for a snapshot, and a bucket has about one key."""
    monkeypatch.setattr(snapshots, "FEWEST_ROWS", 0)
    monkeypatch.setattr(buckets, "KEYS_PER_BUCKET", 1)


def last_by_partition(table: Table) -> dict[tuple[bytes | None, int], bytes | None]:
    """The last value of each key in each partition: what compaction keeps."""
    return {(record.key, record.partition): record.value for record in table.records()}


def partition_of(table: Table, key: bytes) -> int:
    [partition] = {record.partition for record in table.records() if record.key == key}
    return partition


# Case 6: isolation.level=read_uncommitted in the profile


@pytest.mark.parametrize("ends", ["aborted", "open"])
def test_uncommitted_records_are_not_compared_with_read_uncommitted_in_profile(table: Table, ends: str) -> None:
    table.kafka = {"isolation.level": "read_uncommitted"}
    table.publish([ANN, BOB])
    producer = KafkaProducer(bootstrap_servers=table.broker, transactional_id=f"other-{table.topic}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(table.topic, key=json_key(3), value=json_value(CEM), partition=0)
    producer.send(table.topic, key=json_key(1), value=None, partition=partition_of(table, json_key(1)))
    producer.flush()
    if ends == "aborted":
        producer.abort_transaction()
    try:
        uncommitted = read_topic(table.broker, table.topic, "read_uncommitted")
        assert json_value(CEM) in [record.value for record in uncommitted]
        assert table.view() == [ANN, BOB]
        assert counts(table.publish([ANN, BOB, CEM])) == (1, 0, 0, 2)
    finally:
        if ends == "open":
            producer.abort_transaction()
        producer.close()
    assert table.latest() == {json_key(row[0]): json_value(row) for row in (ANN, BOB, CEM)}
    assert table.view() == [ANN, BOB, CEM]


# Case 9: a row whose value is null


@pytest.mark.parametrize("mode", ["upsert", "retract"])
def test_null_value_is_refused_in_first_load_and_later(raw_table: RawTable, mode: str) -> None:
    raw_table.options["update_mode"] = mode
    raw_table.publish([("a", "1")])
    before = raw_table.end()
    message = r'model users: 2 rows have NULL as the value of the message \(name\), .*\{"id":"[ab]"\}.* COALESCE.* delete_when'
    with pytest.raises(GuardError, match=message):
        raw_table.publish([("a", None), ("b", None), ("c", "3")])
    assert raw_table.end() == before
    with pytest.raises(GuardError, match="1 row has NULL as the value of the message"):
        raw_table.publish([("a", "1"), ("b", None)], mode="preview")


@pytest.mark.parametrize("latest", [{}, {"on_duplicate_key": "latest", "sequence_by": "id"}])
def test_null_value_is_refused_before_topic_is_created(raw_table: RawTable, latest: dict[str, Any]) -> None:
    raw_table.options |= {"update_mode": "upsert", **latest}
    with pytest.raises(GuardError, match="1 row has NULL as the value of the message"):
        raw_table.publish([("a", None), ("b", "2")])
    with pytest.raises(AssertionError, match="does not exist"):
        raw_table.records()


def test_null_value_of_duplicate_rows_is_refused_as_duplicate(raw_table: RawTable) -> None:
    with pytest.raises(GuardError, match=r"(?s)2 rows share .*\n.*1 row has NULL as the value"):
        raw_table.publish([("a", None), ("a", "2"), ("b", None)], update_mode="upsert")


@pytest.mark.usefixtures("small_snapshots")
@pytest.mark.parametrize("partitioner", ["default", pytest.param("round-robin", marks=pytest.mark.nightly)])
def test_null_value_is_refused_with_snapshot(raw_table: RawTable, partitioner: str) -> None:
    raw_table.options |= {"update_mode": "upsert", "sink_partitioner": partitioner}
    rows: list[tuple[str, str | None]] = [(f"k{i}", f"v{i}") for i in range(40)]
    raw_table.publish(rows)
    assert counts(raw_table.publish(rows)) == (0, 0, 0, 40)
    before = raw_table.end()
    for changed in ([("k0", None), *rows[1:]], [*rows, ("new", None)], [(key, None) for key, _ in rows]):
        with pytest.raises(GuardError, match="NULL as the value of the message"):
            raw_table.publish(changed)
        assert raw_table.end() == before


def test_null_value_of_row_to_delete_is_allowed(raw_table: RawTable) -> None:
    raw_table.options |= {"update_mode": "upsert", "delete_when": "name IS NULL"}
    assert counts(raw_table.publish([("a", "1"), ("b", "2"), ("x", None)])) == (2, 0, 0, 0)
    assert counts(raw_table.publish([("a", None), ("b", "2"), ("x", None)])) == (0, 0, 1, 1)
    before = raw_table.end()
    assert counts(raw_table.publish([("a", None), ("b", "2")])) == (0, 0, 0, 1)
    assert raw_table.end() == before
    assert raw_table.latest() == {b"b": b"2"}


def test_appended_null_value_is_written_with_warning_if_topic_is_compacted(raw_table: RawTable, warnings: list[str]) -> None:
    raw_table.publish([("a", "1"), ("b", None)], topic_config={"cleanup.policy": "compact"})
    assert raw_table.latest() == {b"a": b"1"}
    assert (b"b", None) in [(record.key, record.value) for record in raw_table.records()]
    [warning] = warnings
    assert warning.startswith("model users: 1 row has a key and NULL as the value of the message (name)")
    assert raw_table.topic in warning


def test_appended_null_value_is_written_without_warning_if_topic_is_not_compacted(
    raw_table: RawTable, warnings: list[str]
) -> None:
    raw_table.publish([("a", None)])
    assert [(record.key, record.value) for record in raw_table.records()] == [(b"a", None)]
    assert warnings == []


# Case 10: a key in two partitions


@pytest.mark.parametrize(
    ("mode", "guarantee"),
    [
        ("upsert", "exactly-once"),
        ("retract", "at-least-once"),
        pytest.param("upsert", "at-least-once", marks=pytest.mark.nightly),
        pytest.param("retract", "exactly-once", marks=pytest.mark.nightly),
    ],
)
def test_key_in_two_partitions_is_updated_in_one_and_deleted_in_other(table: Table, mode: str, guarantee: str) -> None:
    table.options |= {"update_mode": mode, "sink_delivery_guarantee": guarantee}
    table.publish([ANN, BOB, CEM])
    where = {row[0]: partition_of(table, json_key(row[0])) for row in (ANN, BOB, CEM)}
    table.write_by_hand(*[(json_key(key), json_value((key, "moved")), 1 - where[key]) for key in (1, 2, 3)])

    before = table.end()
    published = table.publish([(1, "anna"), (2, "moved"), (4, "dan")])
    # 1 changed, 2 has the row in the partition that counts, 3 is deleted in both partitions.
    assert counts(published) == (1, 2, 1, 0)
    new = table.new_records(before)
    assert published.records == len(new) == (8 if mode == "retract" else 7)
    last = last_by_partition(table)
    for key, name in {1: "anna", 2: "moved"}.items():
        assert last[json_key(key), 1 - where[key]] == json_value((key, name))
        assert last[json_key(key), where[key]] is None
    assert last[json_key(3), 0] is last[json_key(3), 1] is None
    rows = [(1, "anna"), (2, "moved"), (4, "dan")]
    assert table.view() == rows

    before = table.end()
    assert counts(table.publish(rows)) == (0, 0, 0, 3)
    assert table.end() == before
    # The reverse: an update stays in the partition that has the value.
    assert counts(table.publish([(1, "ann"), *rows[1:]])) == (0, 1, 0, 2)
    assert {record.partition for record in table.new_records(before)} == {1 - where[1]}
    assert table.view() == [ANN, *rows[1:]]


def test_deleted_key_with_value_in_another_partition_is_deleted_there(table: Table) -> None:
    table.publish([ANN, BOB])
    where = partition_of(table, json_key(1))
    table.write_by_hand((json_key(1), None, 1 - where))
    assert table.view() == [ANN, BOB], "compaction would remove the tombstone and keep the value"
    before = table.end()
    assert counts(table.publish([BOB])) == (0, 0, 1, 1)
    assert [(r.key, r.value, r.partition) for r in table.new_records(before)] == [(json_key(1), None, where)]
    before = table.end()
    assert counts(table.publish([BOB])) == (0, 0, 0, 1)
    assert table.end() == before
    assert table.view() == [BOB]


@pytest.mark.nightly
def test_keys_in_two_partitions_count_once_for_max_deletes(table: Table) -> None:
    table.publish([ANN, BOB, CEM])
    for row in (ANN, BOB):
        table.write_by_hand((json_key(row[0]), b"{}", 1 - partition_of(table, json_key(row[0]))))
    before = table.end()
    with pytest.raises(GuardError, match=r"2 of the topic's 3 keys would be deleted, .* max_deletes=1 allows 1"):
        table.publish([CEM], max_deletes=1)
    assert table.end() == before
    assert counts(table.publish([CEM], max_deletes=2)) == (0, 0, 2, 1)
    assert [value for (key, _), value in last_by_partition(table).items() if key != json_key(3)] == [None] * 4


@pytest.mark.parametrize(
    "options", [{"update_mode": "append"}, pytest.param({"sink_ignore_retraction": True}, marks=pytest.mark.nightly)]
)
def test_old_value_stays_where_no_tombstones_are_written(table: Table, options: dict[str, Any]) -> None:
    table.publish([ANN, BOB])
    table.write_by_hand((json_key(1), json_value(ANN), 1 - partition_of(table, json_key(1))))
    before = table.end()
    assert counts(table.publish([ANN, BOB], **options)) == (0, 0, 0, 2)
    assert table.end() == before


@pytest.mark.nightly
def test_slice_deletes_old_values_of_its_own_keys_only(table: Table) -> None:
    table.options["missing_keys"] = "keep"
    table.publish([ANN, BOB])
    where = {row[0]: partition_of(table, json_key(row[0])) for row in (ANN, BOB)}
    table.write_by_hand(*[(json_key(key), json_value((key, "moved")), 1 - where[key]) for key in (1, 2)])
    assert counts(table.publish([(1, "anna")])) == (0, 1, 0, 0)
    last = last_by_partition(table)
    assert last[json_key(1), where[1]] is None
    assert last[json_key(2), where[2]] == json_value(BOB)


@pytest.mark.nightly
def test_foreign_key_in_two_partitions_is_kept(table: Table) -> None:
    table.publish([ANN])
    table.write_by_hand((b"foreign", b"x", 0), (b"foreign", b"y", 1))
    before = table.end()
    assert table.publish([ANN]).foreign == 1
    assert table.end() == before
    published = table.publish([ANN], foreign_keys="delete")
    assert (published.deleted, published.records) == (1, 2)
    assert [value for (key, _), value in last_by_partition(table).items() if key == b"foreign"] == [None, None]


def test_key_in_two_partitions_is_reported_until_old_values_are_deleted(table: Table, warnings: list[str]) -> None:
    table.publish([ANN, BOB])
    table.write_by_hand((json_key(1), json_value(ANN), 1 - partition_of(table, json_key(1))))
    table.publish([ANN, BOB])
    table.publish([ANN, BOB])
    [warning] = warnings
    assert warning.startswith("model users: 1 key has values in more than one partition of topic ")
    assert warning.endswith("The run writes 1 tombstone for the other values.")


@pytest.mark.nightly
@pytest.mark.usefixtures("small_snapshots")
def test_snapshot_is_used_after_old_values_are_deleted(table: Table) -> None:
    rows = [(i, f"name {i}") for i in range(40)]
    table.publish(rows)
    where = partition_of(table, json_key(1))
    table.write_by_hand((json_key(1), b"{}", 1 - where))
    assert counts(table.publish(rows)) == (0, 1, 0, 39)
    changed = [(0, "zero"), (1, "one"), *rows[2:-1]]
    assert counts(table.publish(changed)) == (0, 2, 1, 37)
    last = last_by_partition(table)
    assert (last[json_key(1), 1 - where], last[json_key(1), where]) == (json_value((1, "one")), None)
    assert table.view() == changed


@pytest.mark.parametrize("format", ["debezium-json", pytest.param("canal-json", marks=pytest.mark.nightly)])
def test_change_events_delete_old_row_in_other_partition(
    spark: SparkSession, broker: str, topic_name: str, schema_name: str, format: str
) -> None:
    events = Table(spark, broker, topic_name, schema_name)
    events.materialization = "kafka"
    events.options = {"unique_key": "id", "value_format": format}
    events.publish([ANN, BOB])
    [record] = [r for r in events.records() if r.key == json_key(1)]
    events.write_by_hand((json_key(1), record.value, 1 - record.partition))
    before = events.end()
    assert counts(events.publish([(1, "anna"), BOB])) == (0, 1, 0, 1)
    new = events.new_records(before)
    deletes = [r for r in new if b'"DELETE"' in (r.value or b"") or b'"op":"d"' in (r.value or b"")]
    assert sorted(r.partition for r in deletes) == [0, 1]
    assert all(b"ann" in (r.value or b"") for r in deletes)
    assert len(new) == 3
    before = events.end()
    assert counts(events.publish([(1, "anna"), BOB])) == (0, 0, 0, 2)
    assert events.end() == before
