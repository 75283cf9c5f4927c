"""Any schema and any rows: a format decodes what it encodes, and an independent reader can read it."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.formats import Field, Side
from dbt.adapters.upsert_kafka.formats.avro import avro_schema
from dbt.adapters.upsert_kafka.sql import quote_identifier
from tests.property_tests import NIGHTLY
from tests.tables_of_any_type import data_types, structs, values

# A Spark job takes longer than the rows in it, so that one job encodes several tables.
EXAMPLES, TABLES, ROWS = 40 if NIGHTLY else 4, 5, 4
OPTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "json": {
        "timestamp_format_standard": st.sampled_from(["SQL", "ISO-8601"]),
        "encode_decimal_as_plain_number": st.booleans(),
        "encode_ignore_null_fields": st.booleans(),
    },
    "csv": {
        "field_delimiter": st.sampled_from(",|\t;\\"),
        "quote_character": st.sampled_from("\"'"),
        "escape_character": st.sampled_from("\\^"),
        "write_bigdecimal_in_scientific_notation": st.booleans(),
    },
    "avro": {"timestamp_mapping_legacy": st.just(False)},
}


@pytest.mark.parametrize("format_name", ["json", "csv", "avro"])
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_decoded_rows_equal_the_encoded_rows(spark: SparkSession, format_name: str, data: st.DataObject) -> None:
    format = formats.get(format_name)
    sides: list[Side] = []
    for number in range(TABLES):
        schema = data.draw(structs(format_name, data_types(format_name), 2))
        options = {"timestamp_mapping_legacy": False} | data.draw(st.fixed_dictionaries({}, optional=OPTIONS[format_name]))
        fields = tuple(Field(f"{number}.{f.name}", f.name, f.dataType) for f in schema.fields)
        side = Side("value", "any", fields, options)
        if not format.problems(side):
            sides.append(side)
    assert len(sides) > TABLES // 2, "only schemas with two structs of the same name are skipped"
    columns = [field for side in sides for field in side.fields]
    cells = st.tuples(*[values(field.type, format_name) for field in columns])
    rows = data.draw(st.lists(cells, min_size=ROWS, max_size=ROWS))
    frame = spark.createDataFrame(rows, StructType([StructField(field.column, field.type) for field in columns]))
    originals = [quote_identifier(field.column) for field in columns]
    payloads = [f"{format.encode(side)} AS payload{i}" for i, side in enumerate(sides)]
    decoded = [f"{format.decode(side, f'payload{i}')} AS decoded{i}" for i, side in enumerate(sides)]
    found = (
        frame.selectExpr("*", *payloads).selectExpr("*", *decoded).selectExpr(f"struct({', '.join(originals)}) AS original", "*")
    )
    for row in found.collect():
        back = [value for i in range(len(sides)) for value in row[f"decoded{i}"]]
        for field, expected, value in zip(columns, row["original"], back, strict=True):
            assert value == expected, field
        for i, side in enumerate(sides):
            if format_name == "avro":
                stream = io.BytesIO(row[f"payload{i}"])
                fastavro.schemaless_reader(stream, json.loads(avro_schema(side)), None)
                assert stream.read() == b""
            if format_name == "json":
                names = [field.name for field in side.fields]
                assert list(json.loads(row[f"payload{i}"])) == names or side.options.get("encode_ignore_null_fields")
