"""Formats encode rows to the bytes that Flink 2.2 wrote, and decode these bytes to the rows.

The origin of the bytes is described in flink_2_2.json.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.formats import Field, Side
from dbt.adapters.upsert_kafka.formats.avro import avro_schema
from dbt.adapters.upsert_kafka.sql import quote_identifier

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "flink_2_2.json").read_text())["cases"]

IMPOSSIBLE = {
    ("avro", "avro_ltz"): "Flink's schema has timestamp-micros, but Flink writes milliseconds; readers would get dates in 1970",
}
# Rows that are decoded to other values, because csv is ambiguous (see formats/csv.py): the decoded value by row number.
DECODED_DIFFERENTLY: dict[tuple[str, str], dict[int, Any]] = {
    ("csv", "string"): {0: None},
    ("csv", "binary"): {1: None},
    ("csv", "array_string"): {0: ["a", "b c", "d", "e"]},
}
KEEP_CODEGEN = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"


def identity(case: dict[str, Any]) -> str:
    return f"{case['format']}-{case['name']}-{case['value_fields_include']}"


def parameters(key: str) -> list[Any]:
    """The cases that have this key: `records` or `error`."""
    params = []
    for case in CASES:
        reason = IMPOSSIBLE.get((case["format"], case["name"]))
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
        if key in case:
            params.append(pytest.param(case, id=identity(case), marks=marks))
    return params


def options_of(case: dict[str, Any], role: str) -> dict[str, Any]:
    """The format options of one side by short names, from options such as `value.csv.field-delimiter`."""
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


def rows_sql(case: dict[str, Any]) -> str:
    names = [quote_identifier(name) for name in case["column_names"]]
    rows = ", ".join("(" + ", ".join(row) + ")" for row in case["spark_rows"])
    casts = ", ".join(f"CAST({n} AS {t}) AS {n}" for n, t in zip(names, case["spark_types"], strict=True))
    return f"SELECT {casts} FROM VALUES {rows} AS t({', '.join(names)})"


def rows_of(case: dict[str, Any], spark: SparkSession) -> DataFrame:
    return spark.sql(rows_sql(case))


@pytest.fixture(scope="module")
def written(spark: SparkSession) -> dict[str, list[list[str]]]:
    """The encoded rows of all cases, from one Spark job. Like a run of dbt, the job uses generated code."""
    queries = []
    for case in CASES:
        if "records" in case:
            format = formats.get(case["format"])
            key, value = sides_of(case, rows_of(case, spark))
            bytes_ = [f"lower(hex({format.encode(side)}))" for side in (key, value)]
            queries.append(f"SELECT '{identity(case)}' AS case, array({', '.join(bytes_)}) AS record FROM ({rows_sql(case)})")
    spark.conf.set("spark.sql.optimizer.excludedRules", KEEP_CODEGEN)
    try:
        records: dict[str, list[list[str]]] = {}
        for row in spark.sql(" UNION ALL ".join(queries)).collect():
            records.setdefault(row["case"], []).append(row["record"])
        return records
    finally:
        spark.conf.unset("spark.sql.optimizer.excludedRules")


@pytest.mark.parametrize("case", parameters("records"))
def test_rows_are_encoded_to_the_bytes_of_flink(case: dict[str, Any], written: dict[str, list[list[str]]]) -> None:
    assert written[identity(case)] == case["records"]


@pytest.mark.parametrize("case", parameters("records"))
def test_bytes_of_flink_are_decoded_to_the_rows(case: dict[str, Any], spark: SparkSession) -> None:
    frame = rows_of(case, spark)
    format = formats.get(case["format"])
    key, value = sides_of(case, frame)
    assert format.problems(key) == format.problems(value) == []
    records = ", ".join(f"(X'{k}', X'{v}')" for k, v in case["records"])
    decoded = spark.sql(
        f"SELECT {format.decode(key, 'k')} AS k, {format.decode(value, 'v')} AS v FROM VALUES {records} AS t(k, v)"
    )
    different = DECODED_DIFFERENTLY.get((case["format"], case["name"]), {})
    for side, name in ((key, "k"), (value, "v")):
        expected = frame.select(*[quote_identifier(f.column) for f in side.fields])
        rows = [
            tuple(row) if name == "k" or i not in different else (*row[:-1], different[i])
            for i, row in enumerate(expected.collect())
        ]
        got = decoded.select(*[f"{name}.{quote_identifier(f.column)}" for f in side.fields])
        assert [f.dataType.simpleString() for f in got.schema] == [f.dataType.simpleString() for f in expected.schema]
        assert [tuple(row) for row in got.collect()] == rows


@pytest.mark.parametrize("case", parameters("error"))
def test_types_that_flink_refuses_are_refused_with_the_column_and_a_remedy(case: dict[str, Any], spark: SparkSession) -> None:
    frame = rows_of(case, spark)
    format = formats.get(case["format"])
    _, value = sides_of(case, frame)
    if case["spark_types"][1] == "timestamp_ntz":
        # Flink refuses the type by its precision. Spark's type has no precision, so that the first row with microseconds fails.
        with pytest.raises(Exception, match=r"column 'v' has microseconds.*set avro_timestamp_mapping_legacy=false"):
            frame.selectExpr(format.encode(value)).collect()
        return
    if (case["format"], case["spark_types"][1]) == ("avro", "timestamp"):
        # The only type that is written although Flink refuses it: there are no bytes of Flink that would have to be equal.
        assert format.problems(value) == [] and '"logicalType":"timestamp-micros"' in avro_schema(value)
        return
    [problem] = format.problems(value)
    assert "column 'v'" in problem and case["spark_types"][1] in problem and f"as {case['format']}: " in problem
