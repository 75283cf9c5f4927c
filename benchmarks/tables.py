"""The rows that contenders publish: generated once and stored as Parquet, in three versions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

NARROW = {
    "name": "concat('name of ', id)",
    "amount": "id * 7",
    "city": "concat('city ', id % 1000)",
    "day": "id % 31",
    "share": "id / 8",
}
WIDE = {f"text_{i}": f"concat('text {i} of ', id)" for i in range(20)} | {f"number_{i}": f"id * {i}" for i in range(20)}
SHAPES = {"narrow": NARROW, "wide": WIDE}


@dataclass(frozen=True)
class Versions:
    """Three versions of one table."""

    first: DataFrame
    changed: DataFrame
    """1 % of the rows differ from `first`."""
    deleted: DataFrame
    """`changed` without 0.1 % of its rows."""


def generate(spark: SparkSession, folder: Path, shape: str, rows: int) -> Versions:
    columns = ", ".join(f"{expression} AS {name}" for name, expression in SHAPES[shape].items())
    first = spark.sql(f"SELECT id, {columns} FROM range(0, {rows}, 1, 8)")
    last = next(reversed(SHAPES[shape]))
    changed = first.withColumn(last, first[last] + (first.id % 100 == 0).cast("int"))
    deleted = changed.where("id % 1000 <> 1")
    stored = []
    for name, frame in {"first": first, "changed": changed, "deleted": deleted}.items():
        path = str(folder / f"{shape}-{rows}-{name}")
        frame.write.parquet(path)
        stored.append(spark.read.parquet(path))
    return Versions(*stored)
