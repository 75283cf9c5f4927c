"""Inserts the rows of a seed as data, not as SQL text, so that nulls, quotes, digits and dates arrive unchanged.

Leaves to dbt the names of the columns, and to the adapter their types.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import agate
    from pyspark.sql import SparkSession

LARGEST_BIGINT = 2**63 - 1


def load(spark: SparkSession, table: str, seed: agate.Table, types: Sequence[str]) -> None:
    """Insert the rows of `seed` into `table`, whose columns have these `types`."""
    if not seed.rows:
        return
    # Arrow needs no Python worker, rows of Python objects would. Imported here because only seeds need it.
    import pyarrow as pa

    # The table is filled by position, because names in the file may differ by case only.
    names = [f"c{i}" for i in range(len(types))]
    columns = {name: pa.array([_text(row[i]) for row in seed.rows], pa.string()) for i, name in enumerate(names)}
    rows = spark.createDataFrame(pa.table(columns))
    casts = [f"CAST({name} AS {type})" for name, type in zip(names, types, strict=True)]
    rows.selectExpr(*casts).coalesce(1).write.insertInto(table)


def integer_type(seed: agate.Table, column: int) -> str:
    """Return `bigint`, or `decimal(38,0)` if a number in the column does not fit into it."""
    values = (row[column] for row in seed.rows)
    widest = max((abs(value) for value in values if value is not None), default=0)
    return "bigint" if widest <= LARGEST_BIGINT else "decimal(38,0)"


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    return str(value)
