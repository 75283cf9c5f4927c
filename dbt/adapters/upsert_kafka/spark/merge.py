"""The MERGE statement of an incremental model, column by column: a model may lack columns of its table.

Leaves to dbt's `on_schema_change` how the table's columns change before, and to dbt-spark everything around the statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.sql import quote_identifier

TABLE, ROWS = "DBT_INTERNAL_DEST", "DBT_INTERNAL_SOURCE"
"""The aliases that dbt's `incremental_predicates` use."""


@dataclass(frozen=True)
class Columns:
    """A relation and the names of its columns."""

    relation: str
    names: Sequence[str]

    @property
    def folded(self) -> set[str]:
        """The names in lower case: Spark compares names without case."""
        return {name.lower() for name in self.names}


@dataclass(frozen=True)
class Merge:
    """How the rows of one run of a model get into its table."""

    model: str
    table: Columns
    rows: Columns
    """The model's SELECT; columns that the table does not have are left out."""
    unique_key: str | Sequence[str] | None
    """Rows with the same key are updated; without a key all rows are inserted."""
    update_columns: Sequence[str] | None = None
    """Quoted columns that an update sets; None for all."""
    predicates: Sequence[str] = ()
    allow_missing_columns: bool = False
    """Whether columns that the SELECT lacks become NULL in new rows."""

    @property
    def keys(self) -> list[str]:
        """The columns of the unique key."""
        if isinstance(self.unique_key, str):
            return [self.unique_key] if self.unique_key else []
        return list(self.unique_key or [])


def statement(merge: Merge) -> str:
    """Return the MERGE statement.

    Raises:
        OptionsError: a column of the key is missing, or the SELECT lacks a column that it must have.
    """
    _check_columns(merge)
    common = merge.table.folded & merge.rows.folded
    columns = [quote_identifier(name) for name in merge.rows.names if name.lower() in common]
    updated = columns
    if merge.update_columns is not None:
        updated = [column for column in merge.update_columns if _unquoted(column) in common]
    same_key = [f"{ROWS}.{key} = {TABLE}.{key}" for key in merge.keys] or ["FALSE"]
    assignments = ", ".join(f"{column} = {ROWS}.{column}" for column in updated)
    values = ", ".join(f"{ROWS}.{column}" for column in columns)
    update = f"WHEN MATCHED THEN UPDATE SET {assignments}\n" if assignments else ""
    condition = " AND ".join([*merge.predicates, *same_key])
    return (
        f"MERGE INTO {merge.table.relation} AS {TABLE} USING {merge.rows.relation} AS {ROWS} ON {condition}\n"
        f"{update}WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}) VALUES ({values})"
    )


def _check_columns(merge: Merge) -> None:
    table, rows = merge.table, merge.rows
    for key in merge.keys:
        if _unquoted(key) not in table.folded & rows.folded:
            where = "the SELECT" if _unquoted(key) not in rows.folded else table.relation
            raise OptionsError(
                f"{merge.model}: unique_key: {where} has no column {key} (the SELECT has {', '.join(rows.names)}). "
                "Correct unique_key or the SELECT."
            )
    missing = [name for name in table.names if name.lower() not in rows.folded]
    if missing and not merge.allow_missing_columns:
        raise OptionsError(
            f"{merge.model}: the SELECT lacks {', '.join(missing)}, which {table.relation} has. Set on_schema_change to "
            "append_new_columns or sync_all_columns, or run with --full-refresh."
        )


def _unquoted(column: str) -> str:
    return column.strip("`").replace("``", "`").lower()
