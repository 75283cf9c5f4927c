from __future__ import annotations

import pytest

from dbt.adapters.upsert_kafka import merge
from dbt.adapters.upsert_kafka.errors import OptionsError


@pytest.mark.parametrize("updated", [None, ["`ID`", "`name`", "`new`"]])
def test_rows_are_merged_by_key_column_by_column_and_new_columns_are_left_out(updated: list[str] | None) -> None:
    found = merge.statement(
        "m", "t", "s", ["id", "Name"], ["ID", "name", "new"], "id", updated, predicates=["DBT_INTERNAL_DEST.id > 1"]
    )
    assert found == (
        "MERGE INTO t AS DBT_INTERNAL_DEST USING s AS DBT_INTERNAL_SOURCE "
        "ON DBT_INTERNAL_DEST.id > 1 AND DBT_INTERNAL_SOURCE.id = DBT_INTERNAL_DEST.id\n"
        "WHEN MATCHED THEN UPDATE SET `ID` = DBT_INTERNAL_SOURCE.`ID`, `name` = DBT_INTERNAL_SOURCE.`name`\n"
        "WHEN NOT MATCHED THEN INSERT (`ID`, `name`) VALUES (DBT_INTERNAL_SOURCE.`ID`, DBT_INTERNAL_SOURCE.`name`)"
    )


@pytest.mark.parametrize("key", [None, [], ""])
def test_without_a_key_all_rows_are_inserted(key: str | list[str] | None) -> None:
    found = merge.statement("m", "t", "s", ["a"], ["a"], key, [])
    assert found == (
        "MERGE INTO t AS DBT_INTERNAL_DEST USING s AS DBT_INTERNAL_SOURCE ON FALSE\n"
        "WHEN NOT MATCHED THEN INSERT (`a`) VALUES (DBT_INTERNAL_SOURCE.`a`)"
    )


def test_a_column_that_the_model_lacks_is_refused_unless_it_may() -> None:
    with pytest.raises(OptionsError, match="m: the SELECT lacks b, which t has: set on_schema_change"):
        merge.statement("m", "t", "s", ["a", "b"], ["a"], ["a"], ["`a`"])
    found = merge.statement("m", "t", "s", ["a", "b"], ["a"], ["a"], ["`a`"], may_lack=True)
    assert "INSERT (`a`)" in found


@pytest.mark.parametrize(
    ("key", "told"),
    [("`b`", "the SELECT has no column `b`"), (["a", "c"], "the SELECT has no column c"), ("d", "t has no column d")],
)
def test_a_key_that_is_no_column_is_named(key: str | list[str], told: str) -> None:
    with pytest.raises(OptionsError) as refusal:
        merge.statement("m", "t", "s", ["a", "b"], ["a", "d"], key, [], may_lack=True)
    assert str(refusal.value.msg) == f"m: unique_key: {told} (the SELECT has a, d)"
