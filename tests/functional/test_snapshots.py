"""Snapshots of large tables: a run that uses a snapshot publishes the same changes as a run that reads the topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kafka import KafkaAdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.publish import buckets, change_events, difference, snapshots
from dbt.adapters.upsert_kafka.sinks import Delivery
from tests.counts import counts
from tests.functional.test_changes_model import STEPS, Step, run_and_check
from tests.property_tests import NIGHTLY
from tests.tables import Table, json_key, json_value

ANN, BOB, CEM = (1, "ann"), (2, "bob"), (3, "cem")


@pytest.fixture(autouse=True)
def small_snapshots(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Every table is large enough for a snapshot. Buckets of about one key are compared, or with `both_ways` also all keys."""
    monkeypatch.setattr(snapshots, "FEWEST_ROWS", 0)
    monkeypatch.setattr(buckets, "KEYS_PER_BUCKET", 1)
    in_one_task = getattr(request, "param", BUCKETS) == ONE_TASK
    monkeypatch.setattr(snapshots, "ONE_TASK", 1000 if in_one_task else 0)
    # Many hashes are grouped.
    monkeypatch.setattr(difference, "FEW_HASHES", 1000 if in_one_task else 0)


BUCKETS, ONE_TASK = "buckets", "one-task"
both_ways = pytest.mark.parametrize("small_snapshots", [BUCKETS, ONE_TASK], indirect=True)


def loaded(table: Table) -> snapshots.Snapshot | None:
    """The snapshot that the next run would use."""
    record = table.state_record()
    if record is None or record.log is None or record.log.digest is None:
        return None
    with KafkaSettings(table.broker).admin() as admin:
        topic = topics.describe(admin, table.topic)
    assert topic is not None
    return snapshots.load(table.spark, table.relation, topic, record.log.digest, True)


@pytest.mark.parametrize("guarantee", [pytest.param("at-least-once", marks=pytest.mark.nightly), "exactly-once"])
def test_changes_with_snapshot_equal_changes_without(table: Table, guarantee: str) -> None:
    table.options["sink_delivery_guarantee"] = guarantee
    rows = [(i, f"name {i}") for i in range(40)]
    table.publish(rows)
    snapshot = loaded(table)
    assert snapshot is not None and snapshot.keys == 40

    before = table.end()
    assert counts(table.publish(rows)) == (0, 0, 0, 40)
    assert table.end() == before

    changed = [(0, "zero"), *rows[2:], (40, "new")]
    published = table.publish(changed)
    assert (counts(published), published.records) == ((1, 1, 1, 38), 3)
    assert table.latest() == {json_key(row[0]): json_value(row) for row in changed}
    assert (found := loaded(table)) is not None and found.keys == 40


@both_ways
def test_changes_are_added_to_snapshot_until_it_is_replaced(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MOST_ADDITIONS", 4)
    rows = {i: f"name {i}" for i in range(40)}
    table.publish(list(rows.items()))
    added, stored = [], []
    for number in range(6):
        rows[number] = f"other {number}"
        rows[100 + number] = rows.pop(39 - number)
        assert counts(table.publish(list(rows.items()))) == (1, 1, 1, 38)
        snapshot = loaded(table)
        assert snapshot is not None and snapshot.keys == 40
        added.append(snapshot.added)
        assert snapshot.log is not None
        stored.append(snapshot.log.count())
    # With MOST_ADDITIONS = 4 a small addition counts as a quarter of the 64 buckets.
    assert added == [16, 32, 48, 64, 0, 16]
    assert stored[0] < stored[1] < stored[2] < stored[3] > stored[4]
    assert counts(table.publish(list(rows.items()))) == (0, 0, 0, 40)
    assert table.latest() == {json_key(row[0]): json_value(row) for row in rows.items()}


@pytest.mark.nightly
def test_snapshot_with_addition_but_old_properties_is_not_used(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.publish([ANN, BOB, CEM])

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(snapshots.properties, "save", killed)
        # The table of the topic gets properties too, before the snapshot, but not without offsets.
        patched.setattr(Delivery, "end_offsets", lambda *_: None)
        table.publish([ANN, (2, "bo"), CEM])
    assert loaded(table) is None
    assert counts(table.publish([ANN, BOB, CEM])) == (0, 1, 0, 2)
    assert table.latest() == {json_key(row[0]): json_value(row) for row in (ANN, BOB, CEM)}
    assert loaded(table) is not None


def test_unfinished_snapshot_is_not_used_and_replaced(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(snapshots.properties, "save", killed)
        patched.setattr(Delivery, "end_offsets", lambda *_: None)
        table.publish([ANN, BOB])
    assert loaded(table) is None
    assert counts(table.publish([ANN, CEM])) == (1, 0, 1, 1)
    assert (found := loaded(table)) is not None and found.keys == 2
    assert counts(table.publish([ANN, BOB])) == (1, 0, 1, 1)


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """After its call, a query that reads a record of the topic fails."""

    def failing(found: DataFrame, layout: Any) -> DataFrame:
        return found.withColumn("key", F.expr("raise_error('read')").cast("binary"))

    return lambda: monkeypatch.setattr(change_events, "with_tombstones", failing)


@both_ways
def test_run_with_snapshot_does_not_read_the_topic(table: Table, unreadable: Callable[[], None]) -> None:
    table.publish([ANN, BOB])
    unreadable()
    assert counts(table.publish([BOB, ANN])) == (0, 0, 0, 2)
    assert counts(table.publish([(1, "anna"), CEM])) == (1, 1, 1, 0)
    assert counts(table.publish([(1, "anna"), CEM], full_refresh=True)) == (0, 2, 0, 0)
    assert counts(table.publish([(1, "anna"), CEM])) == (0, 0, 0, 2)
    assert table.latest() == {json_key(row[0]): json_value(row) for row in ((1, "anna"), CEM)}


@both_ways
def test_topic_that_was_read_is_the_next_snapshot(table: Table, unreadable: Callable[[], None]) -> None:
    rows = {i: f"name {i}" for i in range(20)}
    table.publish(list(rows.items()))
    [partition] = [record.partition for record in table.records() if record.key == json_key(3)]
    table.write_by_hand((json_key(3), b"{}", partition), (b"gone", None, 1))
    rows[4], rows[20] = "four", "new"
    del rows[5]
    assert counts(table.publish(list(rows.items()))) == (1, 2, 1, 17)
    snapshot = loaded(table)
    assert snapshot is not None and snapshot.keys == 20
    unreadable()
    rows[6], rows[5] = "six", "again"
    assert counts(table.publish(list(rows.items()))) == (1, 1, 0, 19)
    assert table.latest() == {json_key(row[0]): json_value(row) for row in rows.items()}


def test_split_keys_of_a_topic_that_is_read_are_merged(table: Table) -> None:
    table.publish([ANN, BOB])
    key = json_key(1)
    [partition] = [record.partition for record in table.records() if record.key == key]
    table.write_by_hand((key, b"{}", 1 - partition))
    assert table.publish([ANN, BOB, CEM]).inserted == 1
    last = {(record.partition, record.key): record.value for record in table.records()}
    assert sorted(value for (_, of_key), value in last.items() if of_key == key and value) == [json_value(ANN)]


@pytest.mark.parametrize("small_snapshots", [ONE_TASK], indirect=True)
def test_small_table_is_compared_in_one_job(table: Table) -> None:
    """Two jobs compute the digest, one compares, one writes, and one adds to the snapshot."""
    table.publish([(i, f"name {i}") for i in range(40)])
    scheduler: Any = table.spark.sparkContext._jsc.sc().dagScheduler()
    before = scheduler.numTotalJobs()
    assert counts(table.publish([(i, f"name {i}") for i in range(39)] + [(39, "changed")])) == (0, 1, 0, 39)
    assert scheduler.numTotalJobs() - before <= 5


@both_ways
def test_full_refresh_with_snapshot_compares_keys_only(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("values were compared")

    table.publish([ANN, BOB, CEM])
    before = table.end()
    with monkeypatch.context() as patched:
        patched.setattr(difference, "with_latest", refused)
        with pytest.raises(GuardError, match="2 rows share the unique_key"):
            table.publish([ANN, ANN, CEM], full_refresh=True)
        with pytest.raises(GuardError, match="1 of the topic's 3 keys would be deleted"):
            table.publish([ANN, CEM], full_refresh=True, max_deletes=0)
        assert table.end() == before
        rows = [(1, "anna"), CEM, (4, "dan")]
        published = table.publish(rows, full_refresh=True)
    assert (counts(published), published.records) == ((1, 2, 1, 0), 4)
    assert table.latest() == {json_key(row[0]): json_value(row) for row in rows}
    assert counts(table.publish(rows)) == (0, 0, 0, 3)


@both_ways
def test_full_refresh_with_snapshot_deletes_keys_of_another_layout(table: Table) -> None:
    table.publish([ANN, BOB])
    table.publish([ANN, CEM], full_refresh=True, unique_key="name")
    assert table.latest() == {b'{"name":"ann"}': json_value(ANN), b'{"name":"cem"}': json_value(CEM)}


@both_ways
def test_full_refresh_with_snapshot_writes_keys_where_they_are(table: Table) -> None:
    key, value = json_key(1), json_value(ANN)
    [default] = [record.partition for record in (table.publish([ANN]), table.records())[1]]
    table.write_by_hand((key, None, default), (key, value, 1 - default))
    table.publish([ANN, BOB])
    assert loaded(table) is not None
    before = table.end()
    table.publish([(1, "anna"), BOB], full_refresh=True)
    assert [record.partition for record in table.new_records(before) if record.key == key and record.value] == [1 - default]
    assert table.latest() == {key: json_value((1, "anna")), json_key(2): json_value(BOB)}


@pytest.mark.nightly
def test_snapshot_of_round_robin_keys_only_finds_unchanged_rows(table: Table, unreadable: Callable[[], None]) -> None:
    table.options["sink_partitioner"] = "round-robin"
    rows = [(i, f"name {i}") for i in range(10)]
    table.publish(rows)
    before = {record.key: record.partition for record in table.records()}
    assert counts(table.publish([(i, f"other {i}") for i in range(10)])) == (0, 10, 0, 0)
    assert {record.key: record.partition for record in table.records()} == before
    unreadable()
    assert counts(table.publish([(i, f"other {i}") for i in range(10)])) == (0, 0, 0, 10)
    with pytest.raises(PySparkException, match="read"):
        table.publish(rows)


def test_new_partitioner_does_not_move_keys_of_snapshot(table: Table) -> None:
    rows = [(i, f"name {i}") for i in range(10)]
    table.publish(rows)
    before = {record.key: record.partition for record in table.records()}
    assert table.publish([(i, f"other {i}") for i in range(10)], sink_partitioner="round-robin").updated == 10
    assert {record.key: record.partition for record in table.records()} == before


@pytest.mark.nightly
def test_reinserted_key_stays_in_its_partition_after_partitions_were_added(table: Table) -> None:
    rows = [(i, f"name {i}") for i in range(12)]
    table.publish(rows)
    before = {record.key: record.partition for record in table.records()}
    admin = KafkaAdminClient(bootstrap_servers=table.broker)
    admin.create_partitions({table.topic: 7})
    admin.close()
    assert table.publish(rows).unchanged == 12
    assert table.publish(rows[6:]).deleted == 6
    assert table.publish(rows).inserted == 6
    assert table.publish([(i, f"other {i}") for i in range(12)]).updated == 12
    assert {record.key: record.partition for record in table.records()} == before


@both_ways
@pytest.mark.parametrize("full_refresh", [False, True])
def test_keys_stay_where_they_are_if_a_run_adds_partitions(table: Table, full_refresh: bool) -> None:
    rows = [(i, f"name {i}") for i in range(40)]
    table.publish(rows)
    before = {record.key: record.partition for record in table.records()}
    assert loaded(table) is not None
    table.partitions = 7
    changed = [(i, f"other {i}") for i in range(10, 50)]
    apply: dict[str, Any] = {"on_configuration_change": "apply"}
    assert counts(table.publish(changed, full_refresh=full_refresh, **apply)) == (10, 30, 10, 0)
    assert all(before.get(r.key, r.partition) == r.partition for r in table.records())
    assert {r.partition for r in table.records()} > {0, 1}, "new keys are in new partitions"
    # What this run left for the next one is right too.
    assert counts(table.publish(changed[5:], **apply)) == (0, 0, 5, 35)
    assert counts(table.publish([(i, "last") for i in range(15, 50)], **apply)) == (0, 35, 0, 0)
    assert table.latest() == {json_key(i): json_value((i, "last")) for i in range(15, 50)}
    last: dict[bytes | None, set[int]] = {}
    for record in table.records():
        last.setdefault(record.key, set()).add(record.partition)
    assert all(len(partitions) == 1 for partitions in last.values())


@both_ways
def test_delete_when_with_snapshot_deletes_rows(table: Table) -> None:
    table.options["delete_when"] = "name = 'gone'"
    assert counts(table.publish([ANN, BOB, (3, "gone")])) == (2, 0, 0, 0)
    assert counts(table.publish([ANN, BOB, (3, "gone")])) == (0, 0, 0, 2)
    assert counts(table.publish([ANN, (2, "gone"), (3, "gone")])) == (0, 0, 1, 1)
    assert counts(table.publish([ANN, (2, "gone"), (3, "gone"), (4, "gone")])) == (0, 0, 0, 1)
    with pytest.raises(GuardError, match="2 rows share"):
        table.publish([ANN, (2, "gone"), (3, "gone"), (1, "gone")])
    # Two equal rows to delete have checksums that cancel each other out.
    with pytest.raises(GuardError, match="3 rows share"):
        table.publish([ANN, (2, "gone"), (3, "gone"), (1, "gone"), (1, "gone")])
    assert table.latest() == {json_key(1): json_value(ANN)}


@both_ways
def test_snapshot_is_not_used_after_write_of_another_writer(table: Table) -> None:
    table.publish([ANN, BOB, CEM])
    table.write_by_hand((json_key(2), b"{}", 0))
    assert loaded(table) is None
    assert table.publish([ANN, BOB, CEM]).updated == 1
    assert table.latest()[json_key(2)] == json_value(BOB)


def test_recreated_topic_is_published_again(table: Table) -> None:
    table.publish([ANN, BOB, CEM])
    admin = KafkaAdminClient(bootstrap_servers=table.broker)
    admin.delete_topics([table.topic])
    spec = {"num_partitions": 2, "replication_factor": 1, "configs": {"cleanup.policy": "compact"}}
    admin.create_topics({table.topic: spec}, wait_for_metadata=True)
    admin.close()
    for key in range(3):
        table.write_by_hand((b"%d" % key, b"{}", key % 2))
    assert table.publish([ANN, BOB, CEM]).inserted == 3


@pytest.mark.parametrize("option", [{"missing_keys": "keep"}, {"sink_ignore_retraction": True}], ids=str)
def test_option_that_keeps_missing_keys_deletes_nothing_with_snapshot(table: Table, option: dict[str, Any]) -> None:
    rows = [(i, f"name {i}") for i in range(40)]
    table.publish(rows)
    assert counts(table.publish([(0, "zero"), rows[1], (40, "new")], **option)) == (1, 1, 0, 1)
    assert table.latest() == {json_key(row[0]): json_value(row) for row in [(0, "zero"), *rows[1:], (40, "new")]}


@both_ways
def test_topic_with_foreign_keys_has_no_snapshot(table: Table) -> None:
    table.publish([ANN, BOB])
    table.write_by_hand((b"not ours", b"{}", 0))
    assert table.publish([ANN, BOB, CEM]).foreign == 1
    assert loaded(table) is None


@both_ways
def test_duplicate_and_null_keys_are_refused_with_snapshot(table: Table) -> None:
    table.publish([ANN, BOB])
    with pytest.raises(GuardError, match="2 rows share"):
        table.publish([ANN, BOB, (2, "b")])
    with pytest.raises(GuardError, match="1 row has NULL"):
        table.publish([ANN, BOB, (None, "n")])
    nulls = [(None, "n"), (None, "m")]
    assert table.publish([ANN, BOB, *nulls], on_null_key="drop").dropped == 2
    table.write_by_hand((b"unknown", None, 0))
    for _ in range(2):
        assert table.publish([ANN, BOB, *nulls], on_null_key="drop").dropped == 2


@both_ways
def test_row_without_a_key_is_not_the_key_with_an_empty_text(table: Table) -> None:
    """Both have the same bytes in csv."""
    table.options |= {"key_format": "csv", "unique_key": ["id", "name"], "on_null_key": "drop"}
    table.publish([(1, ""), (2, "bob"), (3, "cem")])
    assert counts(table.publish([(1, None), (1, ""), (2, "bob"), (3, "cem")])) == (0, 0, 0, 3)
    assert counts(table.publish([(1, None), (2, "bob"), (3, "cem")])) == (0, 0, 1, 2)
    assert len(table.latest()) == 2


def test_run_with_on_duplicate_key_latest_saves_no_snapshot(table: Table) -> None:
    rows = [(1, "ann", 1), (1, "anna", 2), (2, "bob", 1)]
    columns = "id int, name string, version int"
    table.publish(rows, columns, on_duplicate_key="latest", sequence_by="version")
    assert loaded(table) is None
    with pytest.raises(GuardError, match="2 rows share"):
        table.publish(rows, columns)


@pytest.fixture
def new_table(spark: SparkSession, broker: str, topic_name: str, schema_name: str) -> Any:
    number = iter(range(1000))
    return lambda: Table(spark, broker, f"{topic_name}-{next(number)}", f"{schema_name}_{next(number)}")


@both_ways
@settings(
    max_examples=40 if NIGHTLY else 2,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(STEPS, min_size=3, max_size=5))
def test_random_runs_with_snapshots_make_topic_equal_to_table(new_table: Any, steps: list[Step]) -> None:
    run_and_check(new_table(), steps)
