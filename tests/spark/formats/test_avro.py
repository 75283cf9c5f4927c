"""Format avro: the derived schema, records read by fastavro, unsupported columns and undecodable payloads."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.formats.avro import avro_schema, read_body
from tests.spark.formats.formatted import SETTINGS, read, settings, side_of, write

EVERYTHING = """SELECT 1 AS id, true AS flag, CAST(2 AS tinyint) AS tiny, CAST(3 AS smallint) AS small, 4L AS big,
    CAST(1.5 AS float) AS f, 2.5D AS d, CAST(-1.50 AS decimal(10,2)) AS amount, 'x🎉' AS text, X'00FF' AS bytes,
    DATE '2024-02-29' AS day,
    TIMESTAMP_NTZ '2024-02-29 12:34:56.123' AS local, array(1, NULL) AS list, map('k', CAST(1 AS tinyint)) AS entries,
    named_struct('a', array(named_struct('b', CAST(5 AS smallint)))) AS nested"""


def test_schema_has_the_names_unions_and_logical_types_of_flink(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT 1 AS id, CAST(1 AS decimal(10,2)) AS d, TIMESTAMP_NTZ '2024-01-01' AS t, "
        "named_struct('a', array(named_struct('b', 1))) AS n"
    )
    assert avro_schema(side_of(frame, required=["id"])) == (
        '{"type":"record","name":"record","namespace":"org.apache.flink.avro.generated","fields":['
        '{"name":"id","type":"int"},'
        '{"name":"d","type":["null",{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}],"default":null},'
        '{"name":"t","type":["null",{"type":"long","logicalType":"timestamp-millis"}],"default":null},'
        '{"name":"n","type":["null",{"type":"record","name":"record_n","fields":[{"name":"a","type":["null",{"type":"array","items":'
        '["null",{"type":"record","name":"record_n_a","fields":[{"name":"b","type":["null","int"],"default":null}]}]}],"default":null}]}]'
        ',"default":null}]}'
    )


@pytest.mark.parametrize(("time_zone", "ansi"), SETTINGS)
def test_fastavro_decodes_the_rows(spark: SparkSession, time_zone: str, ansi: str) -> None:
    with settings(spark, time_zone, ansi):
        frame = spark.sql(EVERYTHING)
        side = side_of(frame, required=["id"])
        [payload] = write(frame, "avro", side)
        assert read(spark, [payload], "avro", side).collect() == frame.collect()
    assert fastavro.schemaless_reader(io.BytesIO(payload), json.loads(avro_schema(side)), None) == {
        "id": 1,
        "flag": True,
        "tiny": 2,
        "small": 3,
        "big": 4,
        "f": 1.5,
        "d": 2.5,
        "amount": Decimal("-1.50"),
        "text": "x🎉",
        "bytes": b"\x00\xff",
        "day": date(2024, 2, 29),
        "local": datetime(2024, 2, 29, 12, 34, 56, 123000, tzinfo=UTC),
        "list": [1, None],
        "entries": {"k": 1},
        "nested": {"a": [{"b": 5}]},
    }


@pytest.mark.parametrize(("time_zone", "ansi"), SETTINGS)
def test_microseconds_are_kept_without_the_legacy_mapping(spark: SparkSession, time_zone: str, ansi: str) -> None:
    sql = """SELECT TIMESTAMP_NTZ '2024-03-10 02:30:00.123456' AS n, TIMESTAMP '2024-11-03 05:30:00.123456Z' AS t,
        array(TIMESTAMP '0001-01-01 00:00:00Z') AS a, DATE '1500-01-01' AS d"""
    with settings(spark, time_zone, ansi):
        frame = spark.sql(sql)
        side = side_of(frame, timestamp_mapping_legacy=False)
        [payload] = write(frame, "avro", side)
        comparable = ["n", "unix_micros(t)", "unix_micros(a[0])", "d"]
        assert read(spark, [payload], "avro", side).selectExpr(*comparable).collect() == frame.selectExpr(*comparable).collect()
    row: Any = fastavro.schemaless_reader(io.BytesIO(payload), json.loads(avro_schema(side)), None)
    assert row["n"] == datetime(2024, 3, 10, 2, 30, 0, 123456)
    assert row["t"] == datetime(2024, 11, 3, 5, 30, 0, 123456, tzinfo=UTC)


def test_timestamp_needs_no_option_and_leaves_the_legacy_mapping_of_timestamp_ntz(spark: SparkSession) -> None:
    frame = spark.sql("SELECT TIMESTAMP_NTZ '2024-03-10 02:30:00.123' AS n, array(TIMESTAMP '2024-11-03 05:30:00.123456Z') AS t")
    side = side_of(frame)
    assert formats.get("avro").problems(side) == []
    assert '"timestamp-millis"' in avro_schema(side) and '"timestamp-micros"' in avro_schema(side)
    [payload] = write(frame, "avro", side)
    assert read(spark, [payload], "avro", side).collect() == frame.collect()
    row: Any = fastavro.schemaless_reader(io.BytesIO(payload), json.loads(avro_schema(side)), None)
    assert row["n"] == datetime(2024, 3, 10, 2, 30, 0, 123000, tzinfo=UTC)
    assert row["t"] == [datetime(2024, 11, 3, 5, 30, 0, 123456, tzinfo=UTC)]


@pytest.mark.parametrize("unit", ["millis", "micros"])
def test_timestamps_are_read_in_the_unit_of_their_writer(spark: SparkSession, unit: str) -> None:
    moment = datetime(2024, 11, 3, 5, 30, 0, 123000, tzinfo=UTC)
    stamp = {"type": "long", "logicalType": f"timestamp-{unit}"}
    nested = {"type": "record", "name": "Nested", "fields": [{"name": "t", "type": stamp}]}
    writer = {
        "type": "record",
        "name": "Event",
        "namespace": "shop",
        "fields": [
            {"name": "t", "type": ["null", stamp]},
            {"name": "n", "type": {"type": "long", "logicalType": f"local-timestamp-{unit}"}},
            {"name": "a", "type": {"type": "array", "items": nested}},
            {"name": "again", "type": "Nested"},
        ],
    }
    buffer = io.BytesIO()
    row = {"t": moment, "n": moment.replace(tzinfo=None), "a": [{"t": moment}], "again": {"t": moment}}
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(writer), row)
    types = "t timestamp, n timestamp_ntz, a array<struct<t: timestamp>>, again struct<t: timestamp>"
    side = side_of(spark.createDataFrame([], types))
    decoded = read_body("payload", side, legacy=True, writer_schema=json.dumps(writer))
    frame = spark.createDataFrame([(bytearray(buffer.getvalue()),)], "payload binary")
    [found] = (
        frame.selectExpr(f"inline({decoded})")
        .selectExpr("unix_micros(t)", "n", "unix_micros(a[0].t)", "unix_micros(again.t)")
        .collect()
    )
    micros = int(moment.timestamp() * 1_000_000)
    assert tuple(found) == (micros, moment.replace(tzinfo=None), micros, micros)


MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
MOMENT = datetime(2024, 11, 3, 5, 30, 0, 123000, tzinfo=UTC)


def decimals(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def nested(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Nested", "fields": list(fields)}


# What the writer registered, what it wrote, the column's type, and the column's value as text.
WRITTEN_OTHERWISE: dict[str, tuple[list[Any], list[Any], str, str]] = {
    "decimal with a smaller scale": ([decimals(10, 2)], [Decimal("1.50")], "decimal(12, 4)", "1.5000"),
    "nullable decimal": ([["null", decimals(10, 2)]], [Decimal("-1.50")], "decimal(38, 18)", "-1.500000000000000000"),
    "decimals in an array": (
        [{"type": "array", "items": decimals(4, 0)}], [[Decimal(-7)]], "array<decimal(10, 2)>", "[-7.00]",
    ),
    "decimal in a struct of small integers": (
        [["null", nested({"name": "a", "type": "int"}, {"name": "d", "type": decimals(4, 1)})]],
        [{"a": 5, "d": Decimal("0.5")}], "struct<a: tinyint, d: decimal(5, 2)>", "{5, 0.50}",
    ),
    "name with the namespace of the record": (
        [nested({"name": "t", "type": MILLIS}), "shop.Nested"], [{"t": MOMENT}, {"t": MOMENT}],
        "struct<t: timestamp>", "{2024-11-03 05:30:00.123}",
    ),
    "name in a column that is not read": (
        [nested({"name": "t", "type": MILLIS}), {"type": "array", "items": "Nested"}], [{"t": MOMENT}, [{"t": MOMENT}]],
        "array<struct<t: timestamp>>", "[{2024-11-03 05:30:00.123}]",
    ),
    "union of two types": ([["null", "string", MILLIS]], [MOMENT], "timestamp", "2024-11-03 05:30:00.123"),
    "type that contains itself": (
        [nested({"name": "t", "type": MILLIS}, {"name": "next", "type": ["null", "Nested"]})],
        [{"t": MOMENT, "next": {"t": MOMENT, "next": None}}],
        "struct<t: timestamp, next: struct<t: timestamp>>", "{2024-11-03 05:30:00.123, {2024-11-03 05:30:00.123}}",
    ),
    # Refused, because the bytes would be another value.
    "decimal with a larger scale": ([decimals(10, 4)], [Decimal("1.2345")], "decimal(10, 2)", ""),
    "decimal with more digits": ([decimals(10, 0)], [Decimal(1234567890)], "decimal(10, 2)", ""),
    "bytes as a decimal": (["bytes"], [b"12"], "decimal(10, 2)", ""),
    "string as a decimal": ([["null", "string"]], ["12"], "decimal(10, 2)", ""),
    "number as a timestamp": (["long"], [1730611800123], "timestamp", ""),
    "number as a date": (["int"], [5], "date", ""),
    "union of two records": (
        [["null", {**nested({"name": "x", "type": "int"}), "name": "Other"}, nested({"name": "t", "type": MILLIS})]],
        [{"t": MOMENT}], "struct<t: timestamp>", "",
    ),
    "records with different units": (
        [[nested({"name": "t", "type": MILLIS}), {**nested({"name": "t", "type": MICROS}), "name": "Other"}]],
        [("shop.Nested", {"t": MOMENT})], "struct<t: timestamp>", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRITTEN_OTHERWISE)
def test_value_of_another_schema_is_read_as_written_or_not_at_all(spark: SparkSession, case: str) -> None:
    types, values, column_type, expected = WRITTEN_OTHERWISE[case]
    fields = [{"name": f"f{i}", "type": written} for i, written in enumerate(types)]
    writer = {"type": "record", "name": "Event", "namespace": "shop", "fields": fields}
    buffer = io.BytesIO()
    row = {f"f{i}": value for i, value in enumerate(values)}
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(json.dumps(writer))), row)
    # The last field only: what a name stands for may be defined in a field that is not read.
    column = f"f{len(types) - 1}"
    side = side_of(spark.createDataFrame([], f"{column} {column_type}"), on_decode_error="skip")
    decoded = read_body("payload", side, legacy=True, writer_schema=json.dumps(writer))
    frame = spark.createDataFrame([(bytearray(buffer.getvalue()),)], "payload binary").selectExpr(f"{decoded} AS records")
    with settings(spark, "UTC", "true"):
        [found] = frame.selectExpr(f"CAST(records[0].{column} AS STRING)").collect()
        assert found[0] == (expected or None)
        if not expected:
            assert frame.collect() == [(None,)]


@pytest.mark.parametrize("value", ["t", "array(t)", "map('k', t)", "named_struct('a', array(t))"])
@pytest.mark.parametrize(("time_zone", "ansi"), SETTINGS)
def test_microseconds_are_an_error_with_the_legacy_mapping(spark: SparkSession, value: str, time_zone: str, ansi: str) -> None:
    rows = "SELECT TIMESTAMP_NTZ '1900-01-01 00:00:00.{digits}' AS t"
    with settings(spark, time_zone, ansi):
        kept = spark.sql(f"SELECT {value} AS v FROM ({rows.format(digits='123')})")
        assert read(spark, write(kept, "avro", side_of(kept)), "avro", side_of(kept)).collect() == kept.collect()
        lost = spark.sql(f"SELECT {value} AS v FROM ({rows.format(digits='123400')})")
        with pytest.raises(Exception, match=r"Topic orders: column 'v' has microseconds.*date_trunc.*: 1900-01-01 00:00:00.1234"):
            write(lost, "avro", side_of(lost))


def test_null_in_a_required_column_is_encoded_to_null(spark: SparkSession) -> None:
    frame = spark.sql("SELECT CAST(NULL AS int) AS id")
    assert frame.selectExpr(formats.get("avro").encode(side_of(frame, required=["id"]))).collect()[0][0] is None


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (
            "map(1, 'x') AS v",
            "column 'v' of type map<int,string> can't be written in the value as avro: Avro maps have string keys",
        ),
        ("INTERVAL '1' DAY AS v", "column 'v' of type interval day .* as avro: cast the column"),
        ("1 AS `a.b`", r"column 'a.b' can't be written in the value as avro: 'a.b' is not an Avro name; use an alias"),
        ("named_struct('a b', 1) AS v", "column 'v' of type .* as avro: 'a b' is not an Avro name"),
        (
            "named_struct('b', named_struct('c', 1)) AS a, named_struct('c', 1) AS a_b",
            "two structs of the value would both be named 'record_a_b' in avro; .* rename one of them",
        ),
    ],
)
def test_unsupported_column_is_reported_with_a_remedy(spark: SparkSession, column: str, problem: str) -> None:
    [found] = formats.get("avro").problems(side_of(spark.sql(f"SELECT 1 AS id, {column}")))
    assert re.match(problem, found)


GARBAGE = [b"", b"\x02", b"\x02\x02", b"\x02\x02\x04x", b"\x02\x02\x02x\x07", b"\x02\x04\x02x", b"garbage"]


@pytest.mark.parametrize("payload", GARBAGE)
def test_undecodable_payload_fails_and_is_shown_in_hex(spark: SparkSession, payload: bytes) -> None:
    side = side_of(spark.sql("SELECT 1 AS id, 'x' AS v"), required=["id"])
    with pytest.raises(
        Exception, match=rf"Topic orders: the value is not avro with the columns of this model: {payload.hex().upper()}"
    ):
        read(spark, [payload], "avro", side).collect()


@pytest.mark.parametrize(("time_zone", "ansi"), SETTINGS)
def test_undecodable_payloads_are_null_with_skip(spark: SparkSession, time_zone: str, ansi: str) -> None:
    side = side_of(spark.sql("SELECT 1 AS id, 'x' AS v"), required=["id"], on_decode_error="skip")
    with settings(spark, time_zone, ansi):
        rows = read(spark, [*GARBAGE, b"\x04\x00"], "avro", side).collect()
    assert [tuple(row) for row in rows] == [(None, None)] * len(GARBAGE) + [(2, None)]
