"""Format json, beyond the conformance tests: decimals, characters, options, unsupported types, undecodable payloads."""

from __future__ import annotations

import json
import re

import pytest
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import formats
from tests.spark.formats.formatted import SETTINGS, read, settings, side_of, texts, write

# Java's BigDecimal.stripTrailingZeros().toString()
DECIMALS = [
    ("0", "decimal(10,2)", "0"),
    ("-0.50", "decimal(10,2)", "-0.5"),
    ("100", "decimal(10,2)", "1E+2"),
    ("-1200000", "decimal(20,4)", "-1.2E+6"),
    ("1230", "decimal(10,0)", "1.23E+3"),
    ("10.10", "decimal(10,2)", "10.1"),
    ("7", "decimal(38,0)", "7"),
    ("99999999999999999999999999999999999999", "decimal(38,0)", "99999999999999999999999999999999999999"),
    ("0.000001", "decimal(20,10)", "0.000001"),
    ("0.00000012", "decimal(20,10)", "1.2E-7"),
    ("-0.0000001", "decimal(20,10)", "-1E-7"),
    ("0.0000000000", "decimal(20,10)", "0"),
    ("123.4500000000", "decimal(20,10)", "123.45"),
    ("-99999999999999.99999999999999999999999", "decimal(37,23)", "-99999999999999.99999999999999999999999"),
]


@pytest.mark.parametrize(("time_zone", "ansi"), SETTINGS)
def test_decimals_have_no_trailing_zeros_and_use_exponents(spark: SparkSession, time_zone: str, ansi: str) -> None:
    columns = ", ".join(f"CAST('{value}' AS {type_}) AS c{i}" for i, (value, type_, _) in enumerate(DECIMALS))
    expected = ",".join(f'"c{i}":{text}' for i, (_, _, text) in enumerate(DECIMALS))
    with settings(spark, time_zone, ansi):
        assert texts(spark, f"SELECT {columns}", "json") == [f"{{{expected}}}"]


@pytest.mark.parametrize(("time_zone", "ansi"), SETTINGS)
def test_plain_decimals_keep_their_zeros_and_have_no_exponents(spark: SparkSession, time_zone: str, ansi: str) -> None:
    sql = "SELECT CAST(100 AS decimal(10,2)) AS a, CAST(1e-9 AS decimal(20,10)) AS b, CAST(0 AS decimal(20,10)) AS c"
    with settings(spark, time_zone, ansi):
        written = texts(spark, sql, "json", encode_decimal_as_plain_number=True)
    assert written == ['{"a":100.00,"b":0.0000000010,"c":0.0000000000}']


@pytest.mark.parametrize(("standard", "separator"), [("SQL", " "), ("ISO-8601", "T")])
@pytest.mark.parametrize(("time_zone", "ansi"), SETTINGS)
def test_timestamps_do_not_depend_on_the_session(
    spark: SparkSession, time_zone: str, ansi: str, standard: str, separator: str
) -> None:
    sql = """SELECT TIMESTAMP '2024-11-03 05:30:00.120Z' AS before, TIMESTAMP '2024-11-03 06:30:00Z' AS after,
        TIMESTAMP_NTZ '2024-03-10 02:30:00.000001' AS gap, timestamp_millis(-1) AS old, array(timestamp_seconds(1e12)) AS far,
        map('x', DATE '0001-01-01') AS dates, named_struct('t', TIMESTAMP_NTZ '2024-01-01') AS s"""
    with settings(spark, time_zone, ansi):
        frame = spark.sql(sql)
        side = side_of(frame, timestamp_format_standard=standard)
        [payload] = write(frame, "json", side)
        assert payload.decode() == (
            '{"before":"2024-11-03_05:30:00.12Z","after":"2024-11-03_06:30:00Z","gap":"2024-03-10_02:30:00.000001",'
            '"old":"1969-12-31_23:59:59.999Z","far":["+33658-09-27_01:46:40Z"],"dates":{"x":"0001-01-01"},'
            '"s":{"t":"2024-01-01_00:00:00"}}'
        ).replace("_", separator)
        # Python's datetime does not support years after 9999.
        back = read(spark, [payload], "json", side).selectExpr("*", "unix_micros(far[0]) AS micros").drop("far")
        expected = frame.selectExpr("*", "unix_micros(far[0]) AS micros").drop("far")
        assert back.collect() == expected.collect()


def test_characters_outside_the_bmp_are_escaped_in_values_names_and_keys(spark: SparkSession) -> None:
    sql = r"SELECT '🎉a中é\n🎉' AS `na🎉me`, map('k🎉', '/\u0001\u007f') AS m, CAST(1.5 AS decimal(3,1)) AS `d🎉`"
    [written] = texts(spark, sql, "json")
    party = r"\uD83C\uDF89"
    assert written == f'{{"na{party}me":"{party}a中é\\n{party}","m":{{"k{party}":"/\\u0001\x7f"}},"d{party}":1.5}}'
    assert json.loads(written)["m"] == {"k🎉": "/\u0001\x7f"}


def test_ignore_null_fields_applies_to_structs_but_not_to_arrays_and_maps(spark: SparkSession) -> None:
    sql = """SELECT 1 AS id, CAST(NULL AS string) AS s, CAST(NULL AS decimal(3,1)) AS d, array(1, NULL) AS a,
        map('k', CAST(NULL AS int)) AS m,
        named_struct('x', CAST(NULL AS decimal(3,1)), 'y', array(CAST(NULL AS decimal(3,1)))) AS n,
        named_struct('x', CAST(NULL AS decimal(3,1))) AS e, named_struct('x', CAST(NULL AS int)) AS i"""
    assert texts(spark, sql, "json", encode_ignore_null_fields=True) == [
        '{"id":1,"a":[1,null],"m":{"k":null},"n":{"y":[null]},"e":{},"i":{}}'
    ]
    assert texts(spark, sql, "json") == [
        '{"id":1,"s":null,"d":null,"a":[1,null],"m":{"k":null},"n":{"x":null,"y":[null]},"e":{"x":null},"i":{"x":null}}'
    ]


def test_nested_decimals_are_written_like_columns(spark: SparkSession) -> None:
    d = "CAST(100 AS decimal(5,1))"
    sql = f"""SELECT array({d}, NULL) AS a, map('k"1', {d}) AS m,
        array(named_struct('x', {d}, 'y', 'é🎉', 't', DATE '2024-01-01')) AS s, named_struct('in', named_struct('x', {d})) AS n,
        CAST(NULL AS array<decimal(5,1)>) AS z, CAST(array() AS array<decimal(5,1)>) AS e"""
    assert texts(spark, sql, "json") == [
        '{"a":[1E+2,null],"m":{"k\\"1":1E+2},"s":[{"x":1E+2,"y":"é\\uD83C\\uDF89","t":"2024-01-01"}],"n":{"in":{"x":1E+2}},"z":null,"e":[]}'
    ]


@pytest.mark.parametrize("more", ["true AS more", "1.5BD AS more"])
def test_backslashes_quotes_and_escapes_are_kept_next_to_characters_outside_the_bmp(spark: SparkSession, more: str) -> None:
    value = '🎉\\u4e2d \\\\u4e2d "中" \\"中\\" \\ \n \u0001 \\🎉 \x1f中\\'
    frame = spark.createDataFrame([(value, {value: [value]})], "s string, m map<string,array<string>>").selectExpr("*", more)
    [payload] = write(frame, "json", side_of(frame))
    row = json.loads(payload)
    assert (row["s"], row["m"]) == (value, {value: [value]})
    text = payload.decode()
    assert "🎉" not in text and "中" in text and r"\uD83C\uDF89" in text and r"\u4E2D" not in text


def test_numbers_have_the_same_text_next_to_characters_outside_the_bmp(spark: SparkSession) -> None:
    edges = ["1.0E-5", "1.1754944E-38", "3.4028235E38", "1.4E-45", "-0.0", "123456.79", "1.0E7", "NaN", "-Infinity"]
    numbers = [f"float('{edge}') AS f{i}, double('{edge}') AS d{i}" for i, edge in enumerate(edges)]
    more = "rand(1) * pow(10, id % 60 - 30) AS d, CAST(rand(2) * pow(10, id % 60 - 30) AS float) AS f, -9223372036854775808 AS l"
    sql = f"SELECT {', '.join(numbers)}, {more}, {{text}} AS t FROM range(300)"
    plain, with_care = (texts(spark, sql.format(text=text), "json") for text in ("'x'", "'\U0001f600'"))
    assert [text.replace("\\uD83D\\uDE00", "x") for text in with_care] == plain
    assert len(set(plain)) == 300


def test_nan_and_infinities_are_strings_and_are_decoded(spark: SparkSession) -> None:
    frame = spark.sql("SELECT double('NaN') AS a, float('-Infinity') AS b, double('Infinity') AS c, -0.0D AS d")
    side = side_of(frame)
    [payload] = write(frame, "json", side)
    assert payload.decode() == '{"a":"NaN","b":"-Infinity","c":"Infinity","d":-0.0}'
    assert [str(v) for v in read(spark, [payload], "json", side).collect()[0]] == ["nan", "-inf", "inf", "-0.0"]


def test_name_in_the_record_may_differ_from_the_column(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS `k_we``ird.na me`, 'x' AS `it's`")
    side = side_of(frame)
    renamed = type(side)(
        "key", "orders", (type(side.fields[0])("k_we`ird.na me", "we`ird.na me", side.fields[0].type), side.fields[1])
    )
    [payload] = write(frame, "json", renamed)
    assert json.loads(payload) == {"we`ird.na me": 1, "it's": "x"}
    assert read(spark, [payload], "json", renamed).collect() == frame.collect()


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        ("map<int,string>", "JSON objects have string keys"),
        ("array<struct<a:map<date,int>>>", "JSON objects have string keys"),
        ("interval day to second", "cast the column"),
        ("variant", "cast the column"),
        ("void", "cast the column"),
        ("array<variant>", "cast the column"),
    ],
)
def test_unsupported_type_is_reported_with_a_remedy(spark: SparkSession, type_: str, reason: str) -> None:
    frame = spark.sql(f"SELECT 1 AS id, CAST(NULL AS {type_}) AS v")
    [problem] = formats.get("json").problems(side_of(frame))
    written = frame.schema["v"].dataType.simpleString()
    assert problem.startswith(f"column 'v' of type {written} can't be written in the value as json: {reason}")


GARBAGE = [b"", b"garbage", b'{"id":1', b'{"id":"x"}', b"[]", b'{"id":1,"t":"yesterday"}', b'{"id":99999999999}', b"\xff\xfe"]


@pytest.mark.parametrize("payload", GARBAGE)
def test_undecodable_payload_fails_and_is_shown(spark: SparkSession, payload: bytes) -> None:
    side = side_of(spark.sql("SELECT 1 AS id, TIMESTAMP_NTZ '2024-01-01' AS t"))
    shown = re.escape(payload.decode(errors="replace")[:5])
    with pytest.raises(Exception, match=rf"Topic orders: the value is not json with the columns of this model: {shown}"):
        read(spark, [payload], "json", side).collect()


@pytest.mark.parametrize(("time_zone", "ansi"), SETTINGS)
def test_undecodable_payloads_are_null_with_skip(spark: SparkSession, time_zone: str, ansi: str) -> None:
    side = side_of(spark.sql("SELECT 1 AS id, TIMESTAMP_NTZ '2024-01-01' AS t"), on_decode_error="skip")
    with settings(spark, time_zone, ansi):
        rows = read(spark, [*GARBAGE, b'{"id":2}'], "json", side).collect()
    assert [tuple(row) for row in rows] == [(None, None)] * len(GARBAGE) + [(2, None)]


def test_unknown_fields_are_ignored_and_missing_fields_are_null(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS id, 'x' AS v")
    assert [tuple(row) for row in read(spark, [b' {"more":[1],"id":7} '], "json", side_of(frame)).collect()] == [(7, None)]


@pytest.mark.parametrize("name", ["csv", "json", "avro", "debezium-json", "canal-json"])
def test_null_payload_is_decoded_to_null(spark: SparkSession, name: str) -> None:
    decode = formats.get(name).decode(side_of(spark.sql("SELECT 1 AS id")), "CAST(NULL AS BINARY)")
    assert spark.sql(f"SELECT {decode} IS NULL").collect()[0][0] is True
