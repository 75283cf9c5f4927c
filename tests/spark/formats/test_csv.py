"""Format csv, beyond the conformance tests: options, quoting, ambiguous values, unsupported types, undecodable payloads."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import formats
from tests.spark.formats.formatted import SETTINGS, read, settings, side_of, texts, write


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a" * 24, "a" * 24),
        ("a" * 25, '"' + "a" * 25 + '"'),
        ("中" * 24, "中" * 24),
        ("中" * 25, '"' + "中" * 25 + '"'),
        ("🎉" * 12, "🎉" * 12),
        ("🎉" * 12 + "a", '"' + "🎉" * 12 + 'a"'),
        ("é🎉" + "-" * 21, "é🎉" + "-" * 21),
        ("é🎉" + "-" * 22, '"é🎉' + "-" * 22 + '"'),
        ("-.:;z", "-.:;z"),
        ("#", '"#"'),
        ("\\", '"\\"'),
        ("\0", '"\0"'),
        ("a\0b", '"a\0b"'),
    ],
)
def test_text_of_25_utf_16_units_or_with_a_low_character_is_quoted(spark: SparkSession, value: str, written: str) -> None:
    frame = spark.createDataFrame([(value,)], "v string")
    side = side_of(frame)
    assert [payload.decode() for payload in write(frame, "csv", side)] == [written]
    assert read(spark, [written.encode()], "csv", side).collect()[0][0] == value


OPTIONS = [
    ({}, '7,"a \'b\' ""c"" \\d",AQI=,2024-02-29'),
    ({"field_delimiter": "\t", "quote_character": "'"}, "7\t'a ''b'' \"c\" \\d'\tAQI=\t2024-02-29"),
    ({"escape_character": "\\"}, '7,"a \'b\' ""c"" \\\\d",AQI=,2024-02-29'),
    ({"disable_quote_character": True}, "7,a 'b' \"c\" \\d,AQI=,2024-02-29"),
    ({"field_delimiter": "\\"}, '7\\"a \'b\' ""c"" \\d"\\"AQI="\\"2024-02-29"'),
]


@pytest.mark.parametrize(("options", "line"), OPTIONS)
@pytest.mark.parametrize(("time_zone", "ansi"), SETTINGS[:2])
def test_options_change_the_line_and_it_is_decoded(
    spark: SparkSession, options: dict[str, Any], line: str, time_zone: str, ansi: str
) -> None:
    sql = """SELECT 7 AS id, 'a \\'b\\' "c" \\\\d' AS s, X'0102' AS b, DATE '2024-02-29' AS d"""
    with settings(spark, time_zone, ansi):
        frame = spark.sql(sql)
        side = side_of(frame, **options)
        [payload] = write(frame, "csv", side)
        assert payload.decode() == line
        assert read(spark, [payload], "csv", side).collect() == frame.collect()


def test_text_with_characters_below_the_delimiter_is_quoted(spark: SparkSession) -> None:
    assert texts(spark, "SELECT 'A1' AS a, 1 AS b, DATE '2024-01-01' AS d, true AS t", "csv", field_delimiter="|") == [
        '"A1"|1|"2024-01-01"|true'
    ]


@pytest.mark.parametrize(("time_zone", "ansi"), SETTINGS)
def test_timestamps_and_decimals_do_not_depend_on_the_session(spark: SparkSession, time_zone: str, ansi: str) -> None:
    sql = """SELECT TIMESTAMP '2024-11-03 05:30:00.120Z' AS t, TIMESTAMP_NTZ '2024-03-10 02:30:00' AS n,
        CAST(0 AS decimal(20,10)) AS d, array(TIMESTAMP '2024-11-03 06:30:00Z') AS a,
        named_struct('t', TIMESTAMP '2024-11-03 06:30:00Z', 'd', 1.5D) AS s"""
    with settings(spark, time_zone, ansi):
        frame = spark.sql(sql)
        side = side_of(frame)
        [payload] = write(frame, "csv", side)
        assert payload.decode() == (
            '"2024-11-03 05:30:00.12Z","2024-03-10 02:30:00",0.0000000000,"2024-11-03 06:30:00Z","2024-11-03 06:30:00Z;1.5"'
        )
        assert read(spark, [payload], "csv", side).collect() == frame.collect()


def test_decimals_use_exponents_with_scientific_notation(spark: SparkSession) -> None:
    sql = "SELECT CAST(100 AS decimal(10,2)) AS a, CAST(1.50 AS decimal(10,2)) AS b"
    assert texts(spark, sql, "csv", write_bigdecimal_in_scientific_notation=True) == ["1E+2,1.5"]
    assert texts(spark, sql, "csv") == ["100.00,1.50"]


def test_null_literal_distinguishes_null_from_empty(spark: SparkSession) -> None:
    frame = spark.sql("SELECT '' AS a, CAST(NULL AS string) AS b, CAST(NULL AS int) AS c, array('x', NULL) AS d, X'' AS e")
    side = side_of(frame, null_literal="n/a")
    [payload] = write(frame, "csv", side)
    assert payload.decode() == ",n/a,n/a,x;n/a,"
    assert read(spark, [payload], "csv", side).collect() == frame.collect()


def test_empty_text_is_decoded_to_null_except_in_required_columns(spark: SparkSession) -> None:
    frame = spark.sql("SELECT '' AS k, '' AS v, X'' AS b, CAST(array() AS array<int>) AS a")
    side = side_of(frame, required=["k"])
    [payload] = write(frame, "csv", side)
    assert payload == b",,,"
    assert tuple(read(spark, [payload], "csv", side).collect()[0]) == ("", None, None, None)


@pytest.mark.parametrize(("required", "value"), [(["v"], ""), ([], None)])
def test_single_empty_field_is_an_empty_payload(spark: SparkSession, required: list[str], value: str | None) -> None:
    frame = spark.sql("SELECT '' AS v")
    side = side_of(frame, required=required)
    assert write(frame, "csv", side) == [b""]
    assert read(spark, [b""], "csv", side).collect()[0][0] == value


def test_line_breaks_and_spaces_in_text_are_kept(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a\r\nb\n", " x ", "\r")], "a string, b string, c string")
    side = side_of(frame)
    assert read(spark, write(frame, "csv", side), "csv", side).collect() == frame.collect()


def test_nan_and_infinities_are_decoded(spark: SparkSession) -> None:
    frame = spark.sql("SELECT double('NaN') AS a, float('-Infinity') AS b, 1E-7D AS c")
    side = side_of(frame)
    [payload] = write(frame, "csv", side)
    assert payload == b"NaN,-Infinity,1.0E-7"
    assert [str(v) for v in read(spark, [payload], "csv", side).collect()[0]] == ["nan", "-inf", "1e-07"]


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        ("map<string,int>", "csv has no maps"),
        ("array<array<int>>", "csv has one level of nesting"),
        ("struct<a:array<int>>", "csv has one level of nesting"),
        ("array<map<string,int>>", "csv has one level of nesting"),
        ("interval year to month", "cast the column"),
    ],
)
def test_unsupported_type_is_reported_with_a_remedy(spark: SparkSession, type_: str, reason: str) -> None:
    frame = spark.sql(f"SELECT 1 AS id, CAST(NULL AS {type_}) AS v")
    [problem] = formats.get("csv").problems(side_of(frame))
    assert problem.startswith(f"column 'v' of type {type_} can't be written in the value as csv: {reason}")


NESTED = "SELECT 1 AS id, TIMESTAMP '2024-01-01 00:00:00Z' AS t, named_struct('a', 1, 'b', 'x') AS s, array(1) AS a"
GARBAGE = [
    b"",
    b"1",
    b"1,2,3,4,5",
    b"x,2024-01-01 00:00:00Z,a;b,1",
    b"1,2024-01-01 00:00:00,1;b,1",
    b"1,,1;2;3,1",
    b"1,,a;b,1",
    b"1,,1;b,2;x",
]


@pytest.mark.parametrize("payload", GARBAGE)
def test_undecodable_payload_fails_and_is_shown(spark: SparkSession, payload: bytes) -> None:
    with pytest.raises(
        Exception, match=rf"Topic orders: the value is not csv with the columns of this model: {payload.decode()}"
    ):
        read(spark, [payload], "csv", side_of(spark.sql(NESTED))).collect()


@pytest.mark.parametrize(("time_zone", "ansi"), SETTINGS)
def test_undecodable_payloads_are_null_with_skip(spark: SparkSession, time_zone: str, ansi: str) -> None:
    side = side_of(spark.sql(NESTED), on_decode_error="skip")
    with settings(spark, time_zone, ansi):
        rows = read(spark, [*GARBAGE, b"1,,1;b,2;3"], "csv", side).collect()
    assert [tuple(row) for row in rows] == [(None, None, None, None)] * len(GARBAGE) + [(1, None, (1, "b"), [2, 3])]
