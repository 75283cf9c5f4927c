"""Changes that are refused: the error has the count, examples and the option that allows them; the topic is not written."""

# ruff: noqa: E501 (a table of cases reads best a line each)
from __future__ import annotations

from typing import Any

import pytest

from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError, UpsertKafkaError
from tests.tables import Table

ANN, BOB, CEM = (1, "ann"), (2, "bob"), (3, "cem")
VERSIONED = "id int, name string, version int"

REFUSED: dict[str, tuple[list[tuple[Any, ...]], str, dict[str, Any], str]] = {
    "duplicate keys": (
        [ANN, BOB, (2, "bo"), (2, "b")], Table.columns, {},
        r'3 rows share the unique_key \(id\) with another row, for example \{"id":2\} \(3 rows\)\. .*on_duplicate_key=\'latest\'',
    ),
    "duplicate keys that sequence_by can't order": (
        [(1, "a", 5), (1, "b", 5), (1, "c", 4)], VERSIONED, {"on_duplicate_key": "latest", "sequence_by": "version"},
        r'2 rows share the unique_key \(id\) and the sequence_by \(version\)',
    ),
    "null keys": ([ANN, (None, "x")], Table.columns, {}, r'1 row has NULL in a column of unique_key \(id\), for example .*"name":"x".*on_null_key=\'drop\''),
    "no rows": ([], Table.columns, {}, "no rows and the topic has 3 keys. Set allow_empty=true"),
    "no rows but null keys": (
        [(None, "x")], Table.columns, {"on_null_key": "drop"}, "no rows and the topic has 3 keys",
    ),
    "more deletes than a count": (
        [ANN], Table.columns, {"max_deletes": 1}, r"2 of the topic's 3 keys would be deleted, for example .*max_deletes=1 allows 1\. Raise max_deletes",
    ),
    "more deletes than a percentage": ([ANN], Table.columns, {"max_deletes": "50%"}, "2 of the topic's 3 keys .*max_deletes=50% allows 1"),
    "no deletes allowed": ([ANN, BOB], Table.columns, {"max_deletes": 0}, "1 of the topic's 3 keys"),
    "two reasons at once": ([ANN, ANN, (None, "x")], Table.columns, {}, "(?s)2 rows share the unique_key.*1 row has NULL"),
    "changed columns": (
        [(1, "ann", 3)], "id int, name string, age int", {"on_schema_change": "fail"}, "added: age.*on_schema_change='fail'",
    ),
    "a column of another type": (
        [(1, 3)], "id int, name int", {"on_schema_change": "fail"}, r"of another type: name \(string to int\)",
    ),
    "another key": ([ANN], Table.columns, {"unique_key": ["name"]}, "every key in the topic would be foreign.*--full-refresh"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_run_writes_nothing(table: Table, case: str) -> None:
    rows, columns, options, message = REFUSED[case]
    table.publish([ANN, BOB, CEM])
    before = table.end()
    with pytest.raises(GuardError, match=message):
        table.publish(rows, columns, **options)
    assert table.end() == before
    assert table.view() == [ANN, BOB, CEM]


def test_refused_first_run_creates_no_topic(table: Table) -> None:
    with pytest.raises(GuardError, match="share the unique_key"):
        table.publish([ANN, ANN])
    with pytest.raises(AssertionError, match="does not exist"):
        table.records()


def test_changes_that_options_allow_are_written(table: Table) -> None:
    latest = {"on_duplicate_key": "latest", "sequence_by": ["version"], "exclude_columns": ["version"]}
    table.publish([(1, "old", 1), (1, "ann", 2), (2, "bob", 1)], VERSIONED, **latest)
    assert table.view() == [ANN, BOB]
    published = table.publish([ANN, (None, "x"), (None, "y")], on_null_key="drop", max_deletes="50%")
    assert (published.deleted, published.dropped) == (1, 2)
    assert table.publish([], allow_empty=True).deleted == 1
    assert table.view() == []


def test_full_refresh_with_new_unique_key_deletes_old_keys(table: Table) -> None:
    table.publish([ANN, BOB])
    published = table.publish([ANN, BOB], unique_key=["name"], full_refresh=True)
    assert (published.inserted, published.deleted) == (2, 2)
    assert set(table.latest()) == {b'{"name":"ann"}', b'{"name":"bob"}'}


def test_append_new_columns_keeps_removed_columns_as_nulls(table: Table) -> None:
    table.publish([ANN])
    published = table.publish([(1, 42)], "id int, age int", on_schema_change="append_new_columns")
    assert published.updated == 1
    assert list(table.latest().values()) == [b'{"id":1,"name":null,"age":42}']
    table.publish([(1, 42)], "id int, age int", on_schema_change="sync_all_columns")
    assert list(table.latest().values()) == [b'{"id":1,"age":42}']


def test_unknown_on_schema_change_is_refused(table: Table) -> None:
    with pytest.raises(OptionsError, match=r"on_schema_change='whatever' is unknown\. Use one of ignore, fail"):
        table.publish([ANN], on_schema_change="whatever")


def test_invalid_topic_name_is_refused(table: Table) -> None:
    table.topic = "no spaces, please"
    with pytest.raises(UpsertKafkaError, match="is not a name that Kafka allows"):
        table.publish([ANN])


def test_key_column_whose_name_spark_redacts_is_recognized_by_next_run(table: Table) -> None:
    for _ in range(2):
        published = table.publish("SELECT 1 AS token_url", unique_key="token_url")
    assert (published.inserted, published.unchanged) == (0, 1)
