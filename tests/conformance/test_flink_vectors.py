"""Every record that Flink 2.2 wrote (flink_2_2.json says how it came about), written by our formats from the same rows: the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.formats import Field, Side
from dbt.adapters.upsert_kafka.sql import quote_identifier

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "flink_2_2.json").read_text())["cases"]
IMPOSSIBLE: dict[tuple[str, str], str] = {}


def options_of(case: dict[str, Any], role: str) -> dict[str, Any]:
    """`value.csv.field-delimiter` of a WITH clause to this side's short names, typed."""
    options: dict[str, Any] = {}
    for option, value in case["options"].items():
        side, _, name = option.split(".", 2)
        if side == role:
            options[name.replace(".", "_").replace("-", "_")] = {"true": True, "false": False}.get(value, value)
    return options


def sides_of(case: dict[str, Any], frame: DataFrame) -> tuple[Side, Side]:
    types = {f.name: f.dataType for f in frame.schema.fields}
    keys = case["unique_key"]
    values = [c for c in case["column_names"] if case["value_fields_include"] == "ALL" or c not in keys]

    def side(role: Any, columns: list[str]) -> Side:
        fields = tuple(Field(c, c, types[c], nullable=c not in keys) for c in columns)
        return Side(role, "vectors", fields, options_of(case, role))

    return side("key", keys), side("value", values)


def rows_of(case: dict[str, Any], spark: SparkSession) -> DataFrame:
    columns = list(zip(case["column_names"], case["spark_types"], strict=True))
    rows = case.get("spark_rows") or []
    selects = [
        f"SELECT {i} AS row_number, "
        + ", ".join(f"CAST({v} AS {t}) AS {quote_identifier(n)}" for v, (n, t) in zip(row, columns, strict=True))
        for i, row in enumerate(rows)
    ]
    return spark.sql(" UNION ALL ".join(selects))


def identity(case: dict[str, Any]) -> str:
    return f"{case['format']}-{case['name']}-{case['value_fields_include']}"


def parameters(wanted: str) -> list[Any]:
    return [
        pytest.param(
            case,
            id=identity(case),
            marks=[pytest.mark.xfail(reason=IMPOSSIBLE[key], strict=True)] if (key := (case["format"], case["name"])) in IMPOSSIBLE else [],
        )
        for case in CASES
        if wanted in case
    ]


@pytest.mark.parametrize("case", parameters("records"))
def test_rows_give_the_bytes_that_flink_wrote(case: dict[str, Any], spark: SparkSession) -> None:
    frame = rows_of(case, spark)
    format = formats.get(case["format"])
    key, value = sides_of(case, frame)
    assert format.problems(key) == format.problems(value) == []
    written = frame.orderBy("row_number").selectExpr(f"hex({format.encode(key)}) AS k", f"hex({format.encode(value)}) AS v").collect()
    assert [[row.k.lower(), row.v.lower()] for row in written] == case["records"]


@pytest.mark.parametrize("case", parameters("records"))
def test_bytes_that_flink_wrote_give_the_rows(case: dict[str, Any], spark: SparkSession) -> None:
    frame = rows_of(case, spark)
    format = formats.get(case["format"])
    key, value = sides_of(case, frame)
    records = " UNION ALL ".join(f"SELECT {i} AS row_number, X'{k}' AS k, X'{v}' AS v" for i, (k, v) in enumerate(case["records"]))
    decoded = spark.sql(records).orderBy("row_number").selectExpr(f"{format.decode(key, 'k')} AS k", f"{format.decode(value, 'v')} AS v")
    for side, name in ((key, "k"), (value, "v")):
        expected = frame.orderBy("row_number").select(*[quote_identifier(f.column) for f in side.fields])
        got = decoded.select(*[f"{name}.{quote_identifier(f.column)}" for f in side.fields])
        assert [f.dataType.simpleString() for f in got.schema] == [f.dataType.simpleString() for f in expected.schema]
        assert got.collect() == expected.collect()


@pytest.mark.parametrize("case", parameters("error"))
def test_types_that_flink_refuses_are_refused_before_anything_is_written(case: dict[str, Any], spark: SparkSession) -> None:
    frame = rows_of(case, spark)
    _, value = sides_of(case, frame)
    problems = formats.get(case["format"]).problems(value)
    assert len(problems) == 1
    assert "'v'" in problems[0] and case["spark_types"][1] in problems[0] and case["format"] in problems[0]
