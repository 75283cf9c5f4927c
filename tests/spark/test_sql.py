"""Names and texts of any characters survive the way into a SQL statement and back."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka.sql import let, quote_identifier, quote_literal, quote_map, type_text

TEXTS = ["", "it's", 'say "hi"', "a\\nb", "\\", "\\\\'", "tab\t line\n return\r nul\0 sub\x1a", "100 %_ \\%", "\\u0041", "中 🎉"]
TEXTS += ["${env:HOME} $"]
NAMES = ["a", "a.b", "with space", "back`tick``s", 'quo"te', "it's", "naïve 中 🎉", "-- comment", "select"]


def test_literals_give_their_texts(spark: SparkSession) -> None:
    assert list(spark.sql(f"SELECT {', '.join(map(quote_literal, TEXTS))}").collect()[0]) == TEXTS


def test_map_gives_its_entries(spark: SparkSession) -> None:
    entries = {"it's": "a\\b", "x": ""}
    assert spark.sql(f"SELECT {quote_map(entries)}").collect()[0][0] == entries


def test_identifiers_give_their_names(spark: SparkSession) -> None:
    quoted = [quote_identifier(name) for name in NAMES]
    assert spark.sql(f"SELECT {', '.join(quoted)} FROM (SELECT {', '.join(f'1 AS {name}' for name in quoted)})").columns == NAMES


def test_type_text_is_parsed_to_the_same_type(spark: SparkSession) -> None:
    members = ", ".join(f"{quote_identifier(name)}: ARRAY<MAP<STRING, DECIMAL(20, 4)>>" for name in NAMES)
    wanted = spark.sql(f"SELECT CAST(NULL AS STRUCT<{members}>) AS c").schema["c"].dataType
    assert isinstance(wanted, StructType) and wanted.names == NAMES
    assert spark.sql(f"SELECT CAST(NULL AS {type_text(wanted)}) AS c").schema["c"].dataType == wanted


def test_let_binds_a_value_once(spark: SparkSession) -> None:
    first, second = spark.sql(f"SELECT {let('x', 'uuid()', 'array(x, x)')} AS pair").collect()[0][0]
    assert first == second
