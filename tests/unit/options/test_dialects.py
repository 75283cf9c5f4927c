"""Every spelling of an option, in the dialects of Flink, Alibaba Cloud and Huawei DLI, gives the same option."""

from __future__ import annotations

from typing import Any

import pytest

from dbt.adapters.upsert_kafka.options import Limit, parse
from tests.unit.options.test_options import source, upsert

DIALECTS: dict[str, dict[str, Any]] = {
    "config": {
        "topic": "cars",
        "format": "csv",
        "csv_field_delimiter": "|",
        "update_mode": "upsert",
        "sink_partitioner": "fixed",
        "bootstrap_servers": "a:9092,b:9092",
        "properties": {"linger.ms": 5},
    },
    "config with underscores only": {
        "topic": "cars",
        "key_format": "csv",
        "value_format": "csv",
        "key_csv_field_delimiter": "|",
        "value_csv_field_delimiter": "|",
        "sink_partitioner": "fixed",
        "bootstrap_servers": ["a:9092", "b:9092"],
        "properties_linger_ms": 5,
    },
    "yaml": {
        "topic": "cars",
        "key.format": "csv",
        "value.format": "csv",
        "csv.field-delimiter": "|",
        "sink.partitioner": "fixed",
        "properties.bootstrap.servers": "a:9092, b:9092",
        "properties.linger.ms": 5,
    },
    "Flink and Alibaba Cloud": {
        "with_options": {
            "connector": "upsert-kafka",
            "topic": "cars",
            "key.format": "csv",
            "value.format": "csv",
            "key.csv.field-delimiter": "|",
            "value.csv.field-delimiter": "|",
            "sink.partitioner": "fixed",
            "properties.bootstrap.servers": "a:9092,b:9092",
            "properties.linger.ms": "5",
        }
    },
    "Flink as text": {
        "with_options": """
            WITH (
              'connector' = 'upsert-kafka',
              -- one topic
              'topic' = 'cars',
              'format' = 'csv', 'csv.field-delimiter' = '|',
              'sink.partitioner' = 'fixed',
              'properties.bootstrap.servers' = 'a:9092,b:9092',
              'properties.linger.ms' = '5'
            );
        """
    },
    "Huawei DLI": {
        "with_options": {
            "connector.type": "upsert-kafka",
            "connector.version": "0.11",
            "connector.topic": "cars",
            "connector.properties.bootstrap.servers": "a:9092,b:9092",
            "connector.properties.linger.ms": "5",
            "connector.sink-partitioner": "fixed",
            "connector.sink.ignore-retraction": "false",
            "format.type": "csv",
            "format.field-delimiter": "|",
            "update-mode": "upsert",
        }
    },
    "config and WITH clause together": {
        "topic": "cars",
        "value_format": "csv",
        "bootstrap_servers": "a:9092,b:9092",
        "with_options": {
            "topic": "cars",
            "format": "csv",
            "csv.field-delimiter": "|",
            "sink.partitioner": "fixed",
            "properties.linger.ms": "5",
        },
    },
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_spelling_of_a_model_gives_equal_options(dialect: str) -> None:
    assert upsert(**DIALECTS[dialect]) == upsert(**DIALECTS["config"])
    assert upsert(**DIALECTS[dialect]).value_format_options == {"field_delimiter": "|"}


def test_huawei_append_sink_is_parsed() -> None:
    clause = {
        "connector.type": "kafka",
        "connector.version": "0.10",
        "connector.topic": "cars",
        "connector.properties.bootstrap.servers": "kafka:9092",
        "connector.sink-partitioner": "round-robin",
        "format.type": "csv",
        "update-mode": "append",
    }
    parsed = parse("kafka", "cars", {"with_options": clause})
    assert (parsed.topic, parsed.unique_key, parsed.value_format) == ("cars", (), "csv")
    assert (parsed.sink_partitioner, parsed.update_mode, parsed.warnings) == ("round-robin", "append", ())


def test_flink_source_is_parsed() -> None:
    clause = {
        "connector": "kafka",
        "topic": "user_behavior",
        "properties.bootstrap.servers": "localhost:9092",
        "properties.group.id": "testGroup",
        "scan.startup.mode": "earliest-offset",
        "format": "csv",
    }
    parsed = parse("kafka_source", "user_behavior", {"with_options": clause})
    assert (parsed.topics, parsed.value_format, parsed.scan_startup_mode) == (("user_behavior",), "csv", "earliest-offset")
    assert parsed.properties == {"group.id": "testGroup"}


def test_sink_semantic_is_an_alias_of_the_delivery_guarantee() -> None:
    old, new = ({"with_options": {name: "exactly-once"}} for name in ("sink.semantic", "sink.delivery-guarantee"))
    assert upsert(**old) == upsert(**new)


def test_class_name_in_sink_partitioner_means_custom() -> None:
    parsed = upsert(with_options={"sink.partitioner": "acme.place.by_region"})
    huawei = {"connector.sink-partitioner": "custom", "connector.sink-partitioner-class": "acme.place.by_region"}
    assert (parsed.sink_partitioner, parsed.sink_partitioner_class) == ("custom", "acme.place.by_region")
    assert upsert(with_options=huawei) == parsed


def test_key_fields_of_a_sink_set_the_unique_key() -> None:
    parsed = parse("kafka", "users", {"with_options": {"connector": "kafka", "key.fields": "id;name", "key.format": "json"}})
    assert parsed.unique_key == ("id", "name")


def test_specific_format_wins_over_format() -> None:
    parsed = upsert(format="csv", key_format="json", csv_null_literal="-", value_csv_null_literal="n/a")
    assert (parsed.key_format, parsed.value_format) == ("json", "csv")
    assert (parsed.key_format_options, parsed.value_format_options) == ({}, {"null_literal": "n/a"})


def test_cdc_format_applies_to_the_value_only() -> None:
    parsed = parse("kafka", "users", {"unique_key": "id", "format": "debezium-json", "max_deletes": "5%"})
    assert (parsed.key_format, parsed.value_format, parsed.update_mode) == ("json", "debezium-json", "upsert")
    assert parsed.max_deletes == Limit(percent=5)


def test_format_options_have_short_names_and_types() -> None:
    parsed = upsert(**{"json.timestamp-format.standard": "iso-8601", "value.json.encode.decimal-as-plain-number": "true"})
    assert parsed.key_format_options == {"timestamp_format_standard": "ISO-8601"}
    assert parsed.value_format_options == {"timestamp_format_standard": "ISO-8601", "encode_decimal_as_plain_number": True}


def test_old_names_of_registry_options_are_accepted() -> None:
    parsed = upsert(value_format="avro-confluent", **{"value.avro-confluent.schema-registry.url": "http://registry:8081"})
    assert parsed.value_format_options == {"url": "http://registry:8081"}


def test_source_with_a_group_starts_at_the_group_offsets() -> None:
    parsed = source(topic="a;b", **{"properties.group.id": "g"})
    assert parsed.topics == ("a", "b")
    assert (parsed.scan_startup_mode, parsed.scan_bounded_mode) == ("group-offsets", "latest-offset")
    assert source().scan_startup_mode == "earliest-offset"


def test_specific_offsets_and_timestamps_are_parsed() -> None:
    parsed = source(
        scan_startup_mode="specific-offsets",
        scan_startup_specific_offsets="partition:0,offset:42;partition:1,offset:300",
        scan_bounded_mode="timestamp",
        scan_bounded_timestamp_millis="1700000000000",
    )
    assert parsed.scan_startup_specific_offsets == {0: 42, 1: 300}
    assert parsed.scan_bounded_timestamp_millis == 1700000000000
