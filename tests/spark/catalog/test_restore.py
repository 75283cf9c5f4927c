"""A relation's layout from its state record: the same as the run's, and nothing of a record reaches SQL unchecked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.catalog.restore import Restorable, layout_of
from dbt.adapters.upsert_kafka.errors import StateError
from dbt.adapters.upsert_kafka.formats import records
from dbt.adapters.upsert_kafka.formats.records import Records
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.publish import memory
from dbt.adapters.upsert_kafka.state.record import Layout, Owner, Published, Run, StateRecord, decode

CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("upsert_kafka", {"unique_key": ["k_Id", "k_b"], "key_fields_prefix": "k_", "value_fields_include": "EXCEPT_KEY"}),
    ("upsert_kafka", {"unique_key": "k_Id", "format": "csv", "csv_null_literal": "'; --"}),
    ("upsert_kafka", {"unique_key": "k_Id", "key_format": "csv", "value_format": "json", "ignore_parse_errors": True}),
    ("kafka", {"format": "json", "json_timestamp_format_standard": "ISO-8601"}),
    ("kafka", {"unique_key": "k_Id", "value_format": "debezium-json"}),
]
DEEP = "array<struct<`a b`:int,c:map<string,timestamp_ntz>>>"
COLUMNS = f"k_Id bigint, k_b string, `the name` decimal(10,2), deep {DEEP}, d date"


def record_of(layout: Records, parsed: options.ModelOptions) -> StateRecord:
    record = StateRecord(
        *("users", "cluster", "id", Owner("shop", "dev", "s", "users"), "users", Run("i", "h", "now")),
        layout=memory.layout_of(layout, "UTC"),
        view=memory.view_of(layout, parsed),
        published=Published("now", ""),
    )
    return decode("users", record.encode())


@pytest.mark.parametrize(("materialization", "config"), CONFIGS)
def test_layout_of_a_record_is_the_layout_of_the_run(spark: SparkSession, materialization: str, config: dict[str, Any]) -> None:
    # Csv has no nested types.
    columns = COLUMNS.replace(DEEP, "string") if config.get("format") == "csv" else COLUMNS
    parsed = options.parse(materialization, "users", config)
    layout = records.layout(parsed, "users", spark.createDataFrame([], columns).schema)
    restored = layout_of(Restorable(record_of(layout, parsed), KafkaSettings("broker:9092")))
    assert (restored.key.fields, restored.value.fields, restored.columns) == (
        layout.key.fields,
        layout.value.fields,
        layout.columns,
    )
    assert (restored.key_layout(), restored.value_layout()) == (layout.key_layout(), layout.value_layout())
    assert restored.decode("t") == layout.decode("t")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("columns", (("k_Id", "int, evil int"),)),
        ("columns", (("k_Id", "no_such_type"),)),
        ("value", '{"format": "no_such_format", "fields": [], "options": {}}'),
        ("value", '{"format": "csv", "fields": [["k_Id", "int"]], "options": {"sql": "drop table t"}}'),
        ("value", '{"format": "csv", "fields": [["k_Id", "int"]], "options": {"field_delimiter": "too long"}}'),
        ("value", '{"format": "csv", "fields": [["other", "int"]], "options": {}}'),
        ("value", "no json"),
        ("key", '{"format": "csv", "fields": [], "options": {}}'),
    ],
)
def test_record_that_is_not_understood_is_refused_with_the_model_to_run(spark: SparkSession, name: str, text: Any) -> None:
    parsed = options.parse("upsert_kafka", "users", {"unique_key": "k_Id", "format": "csv"})
    layout = records.layout(parsed, "users", spark.createDataFrame([], "k_Id int").schema)
    record = record_of(layout, parsed)
    assert isinstance(record.layout, Layout)
    hostile = replace(record, layout=replace(record.layout, **{name: text}))
    with pytest.raises(StateError, match=r"can't be created from its state record: .*Run the model users, which writes a new"):
        layout_of(Restorable(hostile, KafkaSettings("broker:9092")))
