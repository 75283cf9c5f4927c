"""Which records a run writes: the minimal change in every mode, read back by another Kafka client."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError
from dbt.adapters.upsert_kafka.publish import guards, preview
from tests.counts import counts
from tests.tables import Table, json_key, json_value

ANN, BOB, CEM = (1, "ann"), (2, "bob"), (3, "cem")


def test_only_changed_rows_are_written(table: Table) -> None:
    assert table.publish([ANN, BOB, CEM]).inserted == 3
    assert table.latest() == {json_key(row[0]): json_value(row) for row in (ANN, BOB, CEM)}
    before = table.end()

    unchanged = table.publish([CEM, BOB, ANN])
    assert (unchanged.unchanged, unchanged.rows_affected, counts(unchanged)) == (3, 0, (0, 0, 0, 3))
    assert table.end() == before

    changed = table.publish([ANN, (2, "bo"), (4, "dan")])
    assert counts(changed) == (1, 1, 1, 1)
    assert {(r.key, r.value) for r in table.new_records(before)} == {
        (json_key(2), json_value((2, "bo"))),
        (json_key(3), None),
        (json_key(4), json_value((4, "dan"))),
    }
    assert table.view() == [ANN, (2, "bo"), (4, "dan")]


def test_key_with_tombstone_is_inserted_again(table: Table) -> None:
    table.publish([ANN, BOB])
    assert table.publish([ANN]).deleted == 1
    again = table.publish([ANN])
    assert (again.deleted, again.unchanged) == (0, 1)
    assert table.publish([ANN, BOB]).inserted == 1
    assert table.view() == [ANN, BOB]


def test_composite_key_has_the_order_of_unique_key(table: Table) -> None:
    table.publish([(1, "a", 10)], "id int, name string, n int", unique_key=["name", "id"])
    assert table.latest() == {b'{"name":"a","id":1}': b'{"id":1,"name":"a","n":10}'}
    assert table.view() == [(1, "a", 10)]


def test_nondeterministic_select_is_written_as_compared(table: Table) -> None:
    published = table.publish("SELECT uuid() AS id, rand() AS name FROM range(500)")
    assert published.inserted == 500
    assert len(table.records()) == len(table.latest()) == 500


def test_missing_keys_keep_deletes_nothing(table: Table) -> None:
    table.publish([ANN, BOB, CEM])
    before = table.end()
    published = table.publish([(2, "bo"), CEM], missing_keys="keep")
    assert counts(published) == (0, 1, 0, 1)
    assert len(table.new_records(before)) == 1
    assert table.view() == [ANN, (2, "bo"), CEM]


def test_empty_select_with_missing_keys_keep_is_allowed(table: Table) -> None:
    table.publish([ANN])
    assert counts(table.publish([], missing_keys="keep")) == (0, 0, 0, 0)
    assert table.view() == [ANN]


@pytest.mark.parametrize("missing_keys", ["delete", "keep"])
def test_rows_that_meet_delete_when_are_deleted(table: Table, missing_keys: str) -> None:
    columns, options = "id int, name string, op string", {"delete_when": "op = 'D'", "exclude_columns": ["op"]}
    table.publish([(1, "ann", "I"), (2, "bob", None), (3, "cem", "I")], columns, **options)
    assert table.view() == [ANN, BOB, CEM], "a NULL condition is false, and op is not published"
    before = table.end()
    rows = [(1, "ann", "U"), (2, "bob", "D"), (9, "never", "D")]
    published = table.publish(rows, columns, missing_keys=missing_keys, **options)
    assert published.deleted == (1 if missing_keys == "keep" else 2)
    gone = {json_key(2)} if missing_keys == "keep" else {json_key(2), json_key(3)}
    assert {(r.key, r.value) for r in table.new_records(before)} == {(key, None) for key in gone}


def test_invalid_delete_when_is_refused(table: Table) -> None:
    with pytest.raises(OptionsError, match=r"delete_when='nam = 1' is not a valid expression over the columns.*nam"):
        table.publish([ANN], delete_when="nam = 1")
    with pytest.raises(OptionsError, match="delete_when='name' has type string; it must be a boolean condition"):
        table.publish([ANN], delete_when="name")


def test_retract_writes_tombstone_before_new_value_in_same_partition(table: Table) -> None:
    table.publish([ANN, BOB, CEM], update_mode="retract")
    before = table.end()
    published = table.publish([(1, "an"), BOB, (4, "dan")], update_mode="retract")
    assert counts(published) == (1, 1, 1, 1)
    new = table.new_records(before)
    assert [(r.key, r.value) for r in new if r.key == json_key(1)] == [(json_key(1), None), (json_key(1), json_value((1, "an")))]
    assert [r.value for r in new if r.key == json_key(3)] == [None]
    assert len(new) == 4
    assert table.view() == [(1, "an"), BOB, (4, "dan")]


@pytest.mark.parametrize("update_mode", ["upsert", "retract"])
def test_ignore_retraction_writes_no_tombstone(table: Table, update_mode: str) -> None:
    options: dict[str, Any] = {"update_mode": update_mode, "sink_ignore_retraction": True}
    table.publish([ANN, BOB], **options)
    published = table.publish([(1, "an")], **options)
    assert counts(published) == (0, 1, 0, 0)
    assert None not in [r.value for r in table.records()]
    assert table.view() == [(1, "an"), BOB]
    assert counts(table.publish([], **options)) == (0, 0, 0, 0), "nothing would be deleted, so an empty SELECT is allowed"


def test_update_mode_append_writes_new_keys_and_refuses_changed_rows(table: Table) -> None:
    table.publish([ANN, BOB], update_mode="append")
    published = table.publish([BOB, CEM], update_mode="append")
    assert counts(published) == (1, 0, 0, 1)
    before = table.end()
    with pytest.raises(GuardError, match=r'1 row differs .* \{"id":1\}.*update_mode=\'upsert\''):
        table.publish([(1, "an"), (4, "dan")], update_mode="append")
    assert table.end() == before
    assert table.view() == [ANN, BOB, CEM]


def test_full_refresh_writes_all_rows_and_deletes_missing_keys(table: Table) -> None:
    table.publish([ANN, BOB, CEM])
    before = table.end()
    published = table.publish([ANN, (2, "bo")], full_refresh=True, missing_keys="keep")
    assert counts(published) == (0, 2, 1, 0)
    assert {(r.key, r.value) for r in table.new_records(before)} == {
        (json_key(1), json_value(ANN)),
        (json_key(2), json_value((2, "bo"))),
        (json_key(3), None),
    }


def test_check_mode_writes_nothing_and_creates_no_topic(table: Table) -> None:
    published = table.publish([ANN], mode="check")
    assert str(published) == "checked, nothing published"
    with pytest.raises(AssertionError, match="does not exist"):
        table.records()
    with pytest.raises(OptionsError, match="unique_key: the SELECT has no column idd, its columns are id, name; did you mean id"):
        table.publish([ANN], mode="check", unique_key="idd")


def test_preview_logs_changes_and_writes_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    table.publish([ANN, BOB])
    before = table.end()
    monkeypatch.setattr(preview.logger, "info", lines.append)
    published = table.publish([(1, "an"), CEM], mode="preview")
    assert lines == [
        f"model users: topic '{table.topic}', owner: {table.owner}, environment: dev, 2 live keys",
        "model users: would insert 1 key, for example",
        'model users:   {"id":3}: (none) -> {"id":3,"name":"cem"}',
        "model users: would update 1 key, for example",
        'model users:   {"id":1}: {"id":1,"name":"ann"} -> {"id":1,"name":"an"}',
        "model users: would delete 1 key, for example",
        'model users:   {"id":2}: {"id":2,"name":"bob"} -> (deleted)',
        "model users: would send 3 messages, 65 bytes",
    ]
    assert str(published) == f"dry run, nothing published: topic {table.topic}: 1 new, 1 changed, 1 deleted, 0 unchanged"
    assert published.rows_affected == 0
    assert table.end() == before


def test_headers_are_written_without_null_headers(table: Table) -> None:
    table.publish([(1, "ann"), (2, None)], headers={"source": "'dbt'", "who": "upper(name)"})
    headers = {r.key: r.headers for r in table.records()}
    assert headers == {json_key(1): [("source", b"dbt"), ("who", b"ANN")], json_key(2): [("source", b"dbt")]}


def test_foreign_keys_are_counted_and_kept_unless_delete_is_set(table: Table) -> None:
    table.publish([ANN, BOB])
    table.write_by_hand((b"\x00\x01binary", b"x", 0), (b'{"other": true}', b"y", 1))
    before = table.end()
    published = table.publish([ANN])
    assert (published.deleted, published.foreign) == (1, 2)
    assert [r.key for r in table.new_records(before)] == [json_key(2)]
    assert table.publish([ANN], foreign_keys="delete").deleted == 2
    assert set(table.latest()) == {json_key(1)}


def test_concurrent_write_is_reported(table: Table, monkeypatch: pytest.MonkeyPatch, warnings: list[str]) -> None:
    table.publish([ANN])
    check = guards.check

    def another_writer(*arguments: Any) -> list[str]:
        table.write_by_hand((json_key(7), b"{}", 1))
        return check(*arguments)

    monkeypatch.setattr(guards, "check", another_writer)
    assert table.publish([(1, "an")]).updated == 1
    moved = r"was written to by another producer \(partitions 1\) during each of 3 comparisons. Nothing was written by this run"
    with pytest.raises(GuardError, match=moved):
        table.publish([(1, "anna")], sink_delivery_guarantee="exactly-once")
    [warning] = warnings
    assert "moved while this run compared with it (partitions 1)" in warning
    monkeypatch.undo()
    assert table.publish([(1, "an")]).deleted == 1, "the next run deletes the other writer's key"


@pytest.mark.nightly
def test_only_changed_rows_of_a_million_are_written(table: Table, spark: SparkSession) -> None:
    keys = 1_000_000
    select = "SELECT id, concat('name ', id {}) AS name FROM range({}) WHERE {}"
    assert table.publish(select.format("", keys, "true")).inserted == keys
    before = table.end()
    published = table.publish(select.format("+ if(id % 100 = 7, 1, 0)", keys, "id % 1000 <> 500"))
    assert (published.inserted, published.updated, published.deleted) == (0, keys // 100, keys // 1000)
    assert published.unchanged == keys - keys // 100 - keys // 1000
    assert sum(table.end().values()) - sum(before.values()) == keys // 100 + keys // 1000
