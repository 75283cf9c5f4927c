"""Hostile inputs: unusual names, values and sizes are published unchanged, or refused before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import sql
from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError, UpsertKafkaError
from dbt.adapters.upsert_kafka.sinks import partitioners
from dbt.adapters.upsert_kafka.source import source
from tests.tables import Table

NAMES = [
    "a.b",
    "a b",
    "a`b",
    'a"b',
    "a'b",
    "sélect ✓ 😀",
    "select",
    "value",
    "topic",
    "token",
    "a\\b",
    "${env:HOME}",
    "a;--b",
    "{{ 1 }}",
]
VALUES = ["'", '"', "`", "\\", "\\'; DROP TABLE x; --", "${env:HOME}", "${dbtenv:HOME}", "\n\t\r", "😀", ""]


@pytest.fixture
def no_substitution(spark: SparkSession) -> Iterator[None]:
    """Turn off variable substitution in SQL, as in the adapter's sessions."""
    spark.conf.set("spark.sql.variable.substitute", "false")
    yield
    spark.conf.unset("spark.sql.variable.substitute")


@pytest.mark.usefixtures("no_substitution")
def test_column_names_with_special_characters_are_published(table: Table) -> None:
    values = ", ".join(f"{sql.quote_literal(VALUES[i % len(VALUES)])} AS {sql.quote_identifier(n)}" for i, n in enumerate(NAMES))
    query = f"SELECT 1 AS {sql.quote_identifier('the `key.')}, {values}"
    expected = [tuple(row) for row in table.spark.sql(query).collect()]
    keys: dict[str, Any] = {"unique_key": ["the `key.", "a.b", "token", "${env:HOME}"]}
    assert table.publish(query, **keys).inserted == 1
    assert table.view() == expected
    assert table.spark.table(f"`{table.schema}`.users").columns[1:] == NAMES
    # Spark redacts table properties with words such as token; the next run must read its own anyway.
    assert table.publish(query, **keys).unchanged == 1
    assert table.publish(query, sink_delivery_guarantee="exactly-once", full_refresh=True, **keys).updated == 1


def test_option_with_sql_is_written_as_value(table: Table) -> None:
    hostile = "x') ; DROP DATABASE a; -- ${env:HOME} \\"
    table.publish([(1, "a")], headers={"h": sql.quote_literal(hostile)}, properties={"client.rack": hostile})
    [record] = table.records()
    assert record.headers == [("h", hostile.encode())]
    assert table.view() == [(1, "a")]


@pytest.mark.parametrize("name", ["../../up", "a/b", "a\n", "..", "a\0b", "a'b", "x" * 250])
def test_topic_name_with_path_or_quote_is_refused(table: Table, name: str) -> None:
    table.topic = name
    with pytest.raises(UpsertKafkaError, match="is not a name that Kafka allows"):
        table.publish([(1, "a")])


@pytest.mark.parametrize("text", ["int) AS x, (select 1", "struct<a:int", "int; DROP TABLE x", "`int`", "${env:HOME}"])
def test_data_type_with_sql_is_refused(spark: SparkSession, text: str) -> None:
    with pytest.raises(OptionsError, match="which is not a type of Spark SQL"):
        source.schema_of(spark, "events", {"id": {"name": "id", "data_type": text}})


def test_only_named_partitioner_module_is_imported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def first(key, value, partitions):\n    return 0\n")
    (tmp_path / "other.py").write_text("raise SystemError('imported by mistake')\n")
    found = partitioners.load("custom", "mine.first", tmp_path)
    assert found.function is not None and found.function(b"", b"", 3) == 0
    for name in ("..mine.first", "mine.first.other", "other", "/etc/passwd.x", "mine.first()", ""):
        with pytest.raises(OptionsError, match=r"can't be imported|not a function"):
            partitioners.load("custom", name, tmp_path)


BIG: dict[str, Any] = {"topic_config": {"max.message.bytes": "8000000"}}


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_key_of_100_kb_and_value_of_5_mb_are_published(table: Table, guarantee: str) -> None:
    # Random bytes, which compression does not shrink.
    noise = "array_join(transform(sequence(1, {}), i -> sha2(concat('{}', i), 512)), '')"
    query = f"SELECT {noise.format(800, 'key')} AS id, {noise.format(40_000, 'value')} AS name"
    assert table.publish(query, sink_delivery_guarantee=guarantee, **BIG).inserted == 1
    [record] = table.records()
    assert record.key is not None and len(record.key) > 100_000
    assert record.value is not None and len(record.value) > 5_000_000
    assert table.publish(query, sink_delivery_guarantee=guarantee, **BIG).unchanged == 1


@pytest.mark.parametrize("is_new", [True, False])
def test_too_large_message_is_refused_before_first_write(table: Table, is_new: bool) -> None:
    if not is_new:
        table.publish([(1, "a")])
    with pytest.raises(GuardError, match=r"the largest message has 2\d+ bytes and at most 10485\d\d are allowed") as refusal:
        table.publish("SELECT id, repeat('x', 2000000) AS name FROM VALUES (1), (2) AS t(id)")
    assert "Nothing was written." in str(refusal.value)
    if not is_new:
        assert len(table.records()) == 1


def test_50_nested_structs_are_published(table: Table) -> None:
    value = "'leaf'"
    for level in range(50):
        value = f"named_struct('f{level}', {value}, 'l', array({level}))"
    assert table.publish(f"SELECT 1 AS id, {value} AS name").inserted == 1
    assert table.publish(f"SELECT 1 AS id, {value} AS name").unchanged == 1
    assert len(table.view()) == 1


def test_1000_columns_are_published(table: Table) -> None:
    query = "SELECT 1 AS id, " + ", ".join(f"{i} AS column_{i}" for i in range(1000))
    assert table.publish(query).inserted == 1
    assert len(table.view()[0]) == 1001
