"""The rows of a seed, as they stand in the file: nulls, quotes, digits and dates exactly, none of them as SQL text.

Leaves to dbt what the columns are called and to the adapter which types they have.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

if TYPE_CHECKING:
    import agate

LARGEST_BIGINT = 2**63 - 1


def load(spark: SparkSession, table: str, seed: agate.Table, types: Sequence[str]) -> None:
    """Insert the seed's rows; `types` are those of the table's columns."""
    if not seed.rows:
        return
    # Through Arrow: rows of Python would start a Python worker. Only now: no other command needs it.
    import pyarrow as pa

    # Names of the file could differ by case only; the table is filled by position.
    names = [f"c{i}" for i in range(len(types))]
    columns = {name: pa.array([_text(row[i]) for row in seed.rows], pa.string()) for i, name in enumerate(names)}
    rows = spark.createDataFrame(pa.table(columns))
    casts = [f"CAST({name} AS {type})" for name, type in zip(names, types, strict=True)]
    rows.selectExpr(*casts).coalesce(1).write.insertInto(table)


def integer_type(seed: agate.Table, column: int) -> str:
    """`bigint`, or a decimal where the file has digits that would not fit."""
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
