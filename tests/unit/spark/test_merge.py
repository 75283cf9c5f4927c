"""The MERGE statement of an incremental model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.spark.merge import Columns, Merge, statement


def merge(table: Sequence[str], rows: Sequence[str], unique_key: str | list[str] | None, **more: Any) -> str:
    return statement(Merge("m", Columns("t", table), Columns("s", rows), unique_key, **more))


@pytest.mark.parametrize("update_columns", [None, ["`ID`", "`name`", "`new`"]])
def test_columns_that_the_table_lacks_are_left_out(update_columns: list[str] | None) -> None:
    predicates = ["DBT_INTERNAL_DEST.id > 1"]
    sql = merge(["id", "Name"], ["ID", "name", "new"], "id", update_columns=update_columns, predicates=predicates)
    assert sql == (
        "MERGE INTO t AS DBT_INTERNAL_DEST USING s AS DBT_INTERNAL_SOURCE "
        "ON DBT_INTERNAL_DEST.id > 1 AND DBT_INTERNAL_SOURCE.id = DBT_INTERNAL_DEST.id\n"
        "WHEN MATCHED THEN UPDATE SET `ID` = DBT_INTERNAL_SOURCE.`ID`, `name` = DBT_INTERNAL_SOURCE.`name`\n"
        "WHEN NOT MATCHED THEN INSERT (`ID`, `name`) VALUES (DBT_INTERNAL_SOURCE.`ID`, DBT_INTERNAL_SOURCE.`name`)"
    )


@pytest.mark.parametrize("key", [None, [], ""])
def test_all_rows_are_inserted_without_a_key(key: str | list[str] | None) -> None:
    assert merge(["a"], ["a"], key, update_columns=[]) == (
        "MERGE INTO t AS DBT_INTERNAL_DEST USING s AS DBT_INTERNAL_SOURCE ON FALSE\n"
        "WHEN NOT MATCHED THEN INSERT (`a`) VALUES (DBT_INTERNAL_SOURCE.`a`)"
    )


def test_column_that_the_select_lacks_is_refused_unless_allowed() -> None:
    with pytest.raises(OptionsError, match=r"m: the SELECT lacks b, which t has\. Set on_schema_change"):
        merge(["a", "b"], ["a"], ["a"], update_columns=["`a`"])
    assert "INSERT (`a`)" in merge(["a", "b"], ["a"], ["a"], update_columns=["`a`"], allow_missing_columns=True)


@pytest.mark.parametrize(
    ("key", "problem"),
    [("`b`", "the SELECT has no column `b`"), (["a", "c"], "the SELECT has no column c"), ("d", "t has no column d")],
)
def test_key_that_is_not_a_column_is_named(key: str | list[str], problem: str) -> None:
    with pytest.raises(OptionsError) as refusal:
        merge(["a", "b"], ["a", "d"], key, update_columns=[], allow_missing_columns=True)
    assert str(refusal.value.msg) == f"m: unique_key: {problem} (the SELECT has a, d). Correct unique_key or the SELECT."
