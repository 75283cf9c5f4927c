"""Options of models: every spelling, defaults, rules and messages. Bad configurations are the rows of bad_options.yml."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.options import Limit, ModelOptions, check_columns, dialects, parse, table, values

BAD_OPTIONS = yaml.safe_load((Path(__file__).parent / "bad_options.yml").read_text())
COLUMNS = ["id", "name", "price"]


def upsert(**config: Any) -> ModelOptions:
    return parse("upsert_kafka", "users", {"unique_key": "id", **config})


def source(**config: Any) -> ModelOptions:
    return parse("kafka_source", "users", {"topic": "users", **config})


def problems(materialization: str = "upsert_kafka", **config: Any) -> str:
    with pytest.raises(OptionsError) as error:
        parse(materialization, "users", {"unique_key": "id", **config})
    return error.value.msg


@pytest.mark.parametrize("row", BAD_OPTIONS, ids=lambda row: row["name"])
def test_bad_configuration_is_refused_with_the_expected_message(row: dict[str, Any]) -> None:
    materialized = row.get("materialized", "upsert_kafka")
    defaults = {"unique_key": "id"} if materialized == "upsert_kafka" else {}
    with pytest.raises(OptionsError) as error:
        parsed = parse(materialized, row["name"], {"materialized": materialized, **defaults, **row["config"]})
        assert row.get("columns"), "parse accepted the row"
        check_columns(parsed, row["name"], COLUMNS)
    message = error.value.msg
    assert message.startswith(f"{row['name']}: ")
    assert [part for part in row["message_contains"] if part not in message] == [], message
    if len(row["message_contains"]) == 1:
        assert message.count("\n") == 1, f"one problem must be one line: {message}"


def test_every_option_with_restricted_values_has_a_bad_row() -> None:
    refused = {name for row in BAD_OPTIONS for name in _options_in_the_message(row)}
    restricted = {o.name for o in table.OPTIONS if o.type not in (values.TEXT, values.BOOLEAN)}
    assert restricted - refused == set()


def _options_in_the_message(row: dict[str, Any]) -> set[str]:
    """The options that the row sets and that the expected message starts a line with."""
    clause = row["config"].get("with_options")
    places = {key: key for key in row["config"]} | {
        f"with_options '{key}'": key for key in clause or () if isinstance(clause, dict)
    }
    reported = {key for place, key in places.items() for part in row["message_contains"] if part.startswith(place)}
    return {known.name for key in reported if (known := dialects.CONFIG.get(table.underscored(key)))} | {"properties"}


def test_model_without_options_gets_the_defaults() -> None:
    parsed = upsert()
    assert (parsed.topic, parsed.key_format, parsed.value_format, parsed.value_fields_include) == (None, "json", "json", "ALL")
    assert (parsed.update_mode, parsed.sink_delivery_guarantee, parsed.sink_partitioner) == ("upsert", "at-least-once", "default")
    assert (parsed.missing_keys, parsed.on_duplicate_key, parsed.on_null_key, parsed.allow_empty) == (
        "delete",
        "error",
        "error",
        False,
    )
    assert parsed.warnings == ()


def test_every_option_of_the_table_is_an_attribute_of_model_options() -> None:
    attributes = {f.name for f in fields(ModelOptions)}
    without = {o.name for o in table.OPTIONS if o.name not in attributes}
    assert without == {"format"} | {o.name for o in table.OPTIONS if o.no_effect}


def test_ignore_parse_errors_is_an_option_and_a_format_option() -> None:
    assert source(ignore_parse_errors=True).ignore_parse_errors
    assert source(with_options={"connector": "kafka", "format": "csv", "csv.ignore-parse-errors": "true"}).ignore_parse_errors
    assert not source().ignore_parse_errors


@pytest.mark.parametrize(
    ("text", "expected"), [(100, Limit(count=100)), ("7", Limit(count=7)), ("12.5 %", Limit(percent=12.5)), (0, Limit(count=0))]
)
def test_max_deletes_is_a_count_or_a_percentage(text: Any, expected: Limit) -> None:
    assert upsert(max_deletes=text).max_deletes == expected


def test_limit_is_inclusive() -> None:
    assert Limit(count=3).allows(3, of=4) and not Limit(count=3).allows(4, of=100)
    assert Limit(percent=10).allows(10, of=100) and not Limit(percent=10).allows(11, of=100)
    assert Limit(percent=10).allows(0, of=0)
    assert (str(Limit(percent=12.5)), str(Limit(count=3))) == ("12.5%", "3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 min", timedelta(minutes=5)),
        ("10s", timedelta(seconds=10)),
        (500, timedelta(milliseconds=500)),
        ("1 DAY", timedelta(days=1)),
    ],
)
def test_durations_are_parsed_like_flinks(text: Any, expected: timedelta) -> None:
    assert values.DURATION.parse(text) == expected


@pytest.mark.parametrize("text", ["a:9092", "[::1]:9092", "SASL_SSL://b-1.kafka:9096,b-2.kafka:9096"])
def test_server_lists_that_kafka_accepts_are_accepted(text: str) -> None:
    assert upsert(bootstrap_servers=text).bootstrap_servers == text


@pytest.mark.parametrize(("text", "expected"), [("\t", "\t"), (r"\t", "\t"), (r"\u0001", "\x01"), ("\\", "\\"), (r"\\", "\\")])
def test_java_escapes_in_delimiters_are_decoded(text: str, expected: str) -> None:
    assert upsert(format="csv", csv_field_delimiter=text).value_format_options == {"field_delimiter": expected}


def test_none_equals_an_option_that_is_not_set() -> None:
    assert upsert(topic=None, properties=None, with_options=None, partitions=None) == upsert()
    assert upsert(properties={"acks": None}) == upsert()


# Config keys that are not options


def test_config_keys_of_dbt_and_dbt_spark_give_no_warning() -> None:
    from dbt.adapters.spark.impl import SparkConfig
    from dbt.artifacts.resources.v1.model import ModelConfig

    config = ModelConfig(materialized="upsert_kafka", unique_key="id").to_dict()
    spark = {f.name: "x" for f in fields(SparkConfig)}
    assert parse("upsert_kafka", "users", {**spark, **config}).warnings == ()


def test_custom_config_keys_give_no_warning() -> None:
    assert upsert(owner="me", sla_hours=4, pii=True, my_partition_key="x", source_format_version=2).warnings == ()


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("value_field_include", "value_fields_include"),
        ("value-field-include", "value_fields_include"),
        ("topics", "topic"),
        ("delivery_guarantee", "sink_delivery_guarantee"),
        ("partitioner_class", "sink_partitioner_class"),
        ("primary_key", "unique_key"),
        ("csv_null_litteral", "csv_null_literal"),
        ("max_delete", "max_deletes"),
        ("max_deletions", "max_deletes"),
        ("missing_key", "missing_keys"),
        ("unique_keys", "unique_key"),
        ("allow_emtpy", "allow_empty"),
        ("on_schema_changes", "on_schema_change"),
        ("grant", "grants"),
    ],
)
def test_misspelt_option_is_an_error_with_the_nearest_name(key: str, near: str) -> None:
    with pytest.raises(OptionsError, match=f"- {key}: is not an option; did you mean {near}"):
        upsert(**{key: "x"})


def test_misspelt_option_is_reported_together_with_other_errors() -> None:
    with pytest.raises(OptionsError, match=r"(?s)users: 2 problems.*- max_delete: is not an option.*- topic='a b': must"):
        upsert(topic="a b", max_delete=1)


def test_huawei_name_in_config_is_a_warning() -> None:
    assert upsert(**{"connector.topic": "x"}).warnings == (
        "users: connector.topic has no effect in config(); set it in with_options",
    )


def test_unknown_client_property_is_a_warning_with_the_nearest_name() -> None:
    assert upsert(properties={"linger.msec": 5}).warnings == (
        "users: properties linger.msec: no Kafka client has this property; did you mean linger.ms?",
    )
    assert upsert(properties={"linger.msec": 5}).properties == {"linger.msec": "5"}


def test_unknown_topic_config_is_a_warning_with_the_nearest_name() -> None:
    parsed = upsert(topic_config={"retention.mss": 5, "min.compaction.lag.ms": 1})
    assert parsed.topic_config == {"retention.mss": "5", "min.compaction.lag.ms": "1"}
    assert parsed.warnings == ("users: topic_config retention.mss: Kafka has no such topic config; did you mean retention.ms?",)


def test_cleanup_policy_without_compact_is_a_warning() -> None:
    assert "without compact" in upsert(topic_config={"cleanup.policy": "delete"}).warnings[0]
    assert upsert(topic_config={"cleanup.policy": "compact,delete"}).warnings == ()


def test_format_option_without_effect_is_a_warning() -> None:
    parsed = upsert(value_json_map_null_key_mode="DROP")
    assert parsed.warnings == ("users: value_json_map_null_key_mode has no effect: maps in Spark have no NULL keys",)


def test_option_without_effect_is_a_warning() -> None:
    assert upsert(with_options={"sink.buffer-flush.max-rows": "100"}).warnings == (
        "users: with_options 'sink.buffer-flush.max-rows' has no effect: a run writes each key at most once",
    )


@pytest.mark.parametrize("version", ["0.10", "0.11"])
def test_connector_version_has_no_effect(version: str) -> None:
    assert upsert(with_options={"connector.type": "upsert-kafka", "connector.version": version}) == upsert()


_WILD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.sampled_from(["json", "csv", "5 min", "a;b", "1%"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(
    st.sampled_from(table.MATERIALIZATIONS),
    st.dictionaries(st.sampled_from([*dialects.CONFIG, *dialects.FLINK, "properties", "with_options"]), _WILD, max_size=6),
    st.none()
    | st.dictionaries(st.sampled_from([*dialects.FLINK, *dialects.HUAWEI, "connector", "connector.type"]), _WILD, max_size=6),
)
def test_any_configuration_is_accepted_or_refused_with_an_options_error(materialized: str, config: Any, clause: Any) -> None:
    try:
        parse(materialized, "users", config | ({} if clause is None else {"with_options": clause}))
    except OptionsError as error:
        assert error.msg.startswith("users: ") and "\n  - " in error.msg


# Secrets and the content of messages

SECRET = "hunter2"


@pytest.mark.parametrize(
    "config",
    [
        {"properties": {"sasl.jaas.config": {"a": SECRET}}},
        {"properties": {"ssl.keystore.key": SECRET}, "properties.ssl.keystore.key": "other"},
        {"properties": f"sasl.jaas.config=password={SECRET}"},
        {"with_options": {"sasl.jaas.config": f"… password='{SECRET}';"}},
        {"with_options": {"propertes.sasl.password": SECRET}},
        {"with_options": {"foo": f"PlainLoginModule required password='{SECRET}';"}},
        {"with_options": f"'properties.sasl.jaas.config' = {SECRET}"},
        {"value_format": "avro-confluent", "avro_confluent_url": f"registry://me:{SECRET}@registry:8081"},
        {"avro_confluent_basic_auth_user_info": f"me:{SECRET}"},
        {"key_avro_confluent_bearer_auth_token": SECRET},
        {"bootstrap_servers": f"me:{SECRET}@broker:9092"},
    ],
)
def test_secret_is_never_in_a_message(config: dict[str, Any]) -> None:
    assert SECRET not in problems(**config)


def test_secret_is_not_in_the_repr_of_the_options() -> None:
    assert SECRET not in repr(upsert(properties={"client.id": SECRET}))


def test_reference_to_a_config_provider_is_accepted() -> None:
    reference = "${vault:kafka:jaas}"
    assert upsert(properties={"sasl.jaas.config": reference}).properties == {"sasl.jaas.config": reference}


def test_long_value_is_shortened_in_the_message() -> None:
    assert len(problems(topic="x y" * 1000)) < 300


def test_rule_that_depends_on_a_failed_option_is_not_reported() -> None:
    assert problems(sink_partitioner="custom", sink_partitioner_class="nodots").count("\n  - ") == 1
    assert problems(format="cvs", csv_null_literal="-").count("\n  - ") == 1


def test_column_names_are_case_insensitive() -> None:
    check_columns(upsert(unique_key="ID", exclude_columns=["Price"]), "users", COLUMNS)


def test_key_prefix_of_all_key_columns_is_accepted() -> None:
    prefixed = upsert(unique_key=["k_id", "k_name"], key_fields_prefix="k_", value_fields_include="EXCEPT_KEY")
    check_columns(prefixed, "users", ["k_id", "k_name", "price"])
