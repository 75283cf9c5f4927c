"""CDC formats encode rows to the bytes that Flink 2.2 wrote, and decode these bytes to the rows.

The origin of the bytes is described in flink_2_2_changes.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.formats import Field, Side
from dbt.adapters.upsert_kafka.formats.changelog import ROW, ROW_KIND, ChangelogFormat
from dbt.adapters.upsert_kafka.sql import quote_literal

FLINK: dict[str, Any] = json.loads((Path(__file__).parent / "flink_2_2_changes.json").read_text())
CASES = [pytest.param(case, id=f"{case['format']}-{'options' if case['options'] else 'default'}") for case in FLINK["inserts"]]


def rows_sql() -> str:
    names = FLINK["column_names"]
    casts = ", ".join(f"CAST({name} AS {type_}) AS {name}" for name, type_ in zip(names, FLINK["spark_types"], strict=True))
    rows = ", ".join(f"({', '.join(row)})" for row in FLINK["spark_rows"])
    return f"SELECT {casts} FROM VALUES {rows} AS t({', '.join(names)})"


def format_and_side(case: dict[str, Any], schema: StructType) -> tuple[ChangelogFormat, Side]:
    format = formats.get(case["format"])
    assert isinstance(format, ChangelogFormat)
    fields = tuple(Field(f.name, f.name, f.dataType) for f in schema.fields)
    return format, Side("value", "changes", fields, case["options"])


@pytest.mark.parametrize("case", CASES)
def test_inserts_are_encoded_to_the_bytes_of_flink(case: dict[str, Any], spark: SparkSession) -> None:
    frame = spark.sql(rows_sql())
    format, side = format_and_side(case, frame.schema)
    row = f"named_struct({', '.join(f'{quote_literal(name)}, {name}' for name in frame.columns)})"
    events = frame.selectExpr("id", f"CAST({format.event(side, row, False)} AS STRING) AS event").orderBy("id").collect()
    assert [event["event"] for event in events] == case["values"]


@pytest.mark.parametrize("case", CASES)
def test_bytes_of_flink_are_decoded_to_the_rows(case: dict[str, Any], spark: SparkSession) -> None:
    frame = spark.sql(rows_sql())
    format, side = format_and_side(case, frame.schema)
    values = ", ".join(f"(CAST({quote_literal(value)} AS BINARY))" for value in case["values"])
    changes = spark.sql(f"SELECT explode({format.changes(side, 'value', True)}) AS c FROM VALUES {values} AS t(value)")
    assert {row[0] for row in changes.select(f"c.{ROW_KIND}").collect()} == {"+I"}
    assert changes.select(f"c.{ROW}.*").orderBy("id").collect() == frame.orderBy("id").collect()
