"""MERGE for incremental models on a format that has it, column by column: a model may lack columns that its table has.

Leaves to dbt's `on_schema_change` what the table's columns become before, and to dbt-spark everything around the statement.
"""

from __future__ import annotations

from collections.abc import Sequence

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.sql import quote_identifier

TABLE, ROWS = "DBT_INTERNAL_DEST", "DBT_INTERNAL_SOURCE"
"""What dbt's `incremental_predicates` call them."""


def statement(
    model: str,
    table: str,
    rows: str,
    of_table: Sequence[str],
    of_rows: Sequence[str],
    unique_key: str | Sequence[str] | None,
    updated: Sequence[str] | None = None,
    predicates: Sequence[str] = (),
    may_lack: bool = False,
) -> str:
    """The MERGE of `rows` into `table`.

    Args:
        of_table: the table's columns.
        of_rows: the model's; those that the table has not are left out.
        unique_key: rows with the same are updated; without one, all are inserted.
        updated: columns, quoted as they are to be, that an update sets; None for all.
        may_lack: whether columns that the model has not become NULL in new rows.
    """
    known, given = {name.lower() for name in of_table}, {name.lower() for name in of_rows}
    keys = [unique_key] if unique_key and isinstance(unique_key, str) else list(unique_key or [])
    for key in keys:
        if _plain(key) not in known & given:
            where = "the SELECT" if _plain(key) not in given else table
            raise OptionsError(f"{model}: unique_key: {where} has no column {key} (the SELECT has {', '.join(of_rows)})")
    lacking = [name for name in of_table if name.lower() not in given]
    if lacking and not may_lack:
        raise OptionsError(
            f"{model}: the SELECT lacks {', '.join(lacking)}, which {table} has: set on_schema_change to append_new_columns or "
            "sync_all_columns, or run with --full-refresh"
        )
    columns = [quote_identifier(name) for name in of_rows if name.lower() in known]
    same = [f"{ROWS}.{key} = {TABLE}.{key}" for key in keys] or ["FALSE"]
    changed = columns if updated is None else [column for column in updated if _plain(column) in known & given]
    sets = ", ".join(f"{column} = {ROWS}.{column}" for column in changed)
    values = ", ".join(f"{ROWS}.{column}" for column in columns)
    update = f"WHEN MATCHED THEN UPDATE SET {sets}\n" if sets else ""
    return (
        f"MERGE INTO {table} AS {TABLE} USING {rows} AS {ROWS} ON {' AND '.join([*predicates, *same])}\n"
        f"{update}WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}) VALUES ({values})"
    )


def _plain(column: str) -> str:
    return column.strip("`").replace("``", "`").lower()
