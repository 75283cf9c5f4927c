"""Rows that violate a not_null constraint are refused, and the topic is not written."""

from __future__ import annotations

import pytest

from dbt.adapters.upsert_kafka.errors import GuardError
from tests.tables import Table


def test_nulls_in_not_null_column_are_refused_with_their_count(table: Table) -> None:
    table.publish([(1, "ann"), (2, "bob")], not_null=("id", "name"))
    before = table.end()
    with pytest.raises(GuardError, match="users: 2 rows have NULL in 'name', which has a not_null constraint") as refused:
        table.publish([(1, None), (2, "bea"), (3, None)], not_null=("id", "name"))
    assert "the topic is untouched" in str(refused.value)
    assert table.end() == before


@pytest.mark.timeout(120)
def test_constraint_is_checked_if_there_are_no_rows(table: Table) -> None:
    """Spark leaves out the parts of a query that have no rows, and with them the counts of violations."""
    table.options |= {"on_duplicate_key": "latest", "sequence_by": "name", "allow_empty": True}
    for rows in ([], [(1, "ann")], []):
        found = table.publish(rows, not_null=("name",))
    assert found.deleted == 1


def test_nulls_in_first_load_are_refused(table: Table) -> None:
    with pytest.raises(GuardError, match="1 row has NULL in 'name'"):
        table.publish([(1, None)], not_null=("name",))
    table.publish([(1, "ann")], not_null=("name",))
    assert table.view() == [(1, "ann")]
