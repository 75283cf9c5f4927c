"""What users may write as options, in every dialect, and that each mistake is named; the bad ones are rows of bad_options.yml."""

from __future__ import annotations

import ast
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.options import Limit, ModelOptions, check_columns, dialects, parse, table, values
from dbt.adapters.upsert_kafka.options.format_table import FORMAT_OPTIONS

BAD_OPTIONS = yaml.safe_load((Path(__file__).parent / "bad_options.yml").read_text())
PACKAGE = Path(table.__file__).parents[1]
COLUMNS = ["id", "name", "price"]
NOT_AVAILABLE_YET = dict(table.NOT_AVAILABLE_YET)


@pytest.fixture(autouse=True)
def _everything_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "NOT_AVAILABLE_YET", {})


def upsert(**config: Any) -> ModelOptions:
    return parse("upsert_kafka", "users", {"unique_key": "id", **config})


def source(**config: Any) -> ModelOptions:
    return parse("kafka_source", "users", {"topic": "users", **config})


def problems(materialization: str = "upsert_kafka", **config: Any) -> str:
    with pytest.raises(OptionsError) as error:
        parse(materialization, "users", {"unique_key": "id", **config})
    return error.value.msg


@pytest.mark.parametrize("row", BAD_OPTIONS, ids=lambda row: row["name"])
def test_bad_configuration_is_refused_with_its_reason(row: dict[str, Any]) -> None:
    materialized = row.get("materialized", "upsert_kafka")
    defaults = {"unique_key": "id"} if materialized == "upsert_kafka" else {}
    with pytest.raises(OptionsError) as error:
        parsed = parse(materialized, row["name"], {"materialized": materialized, **defaults, **row["config"]})
        assert row.get("columns"), "only what the columns tell may get past parse"
        check_columns(parsed, row["name"], COLUMNS)
    message = error.value.msg
    assert message.startswith(f"{row['name']}: ")
    assert [fragment for fragment in row["says"] if fragment not in message] == [], message
    if len(row["says"]) == 1:
        assert message.count("\n  - ") == 1, f"one mistake, more than one line: {message}"


def test_every_option_whose_value_can_be_wrong_has_a_bad_row() -> None:
    configs = [{**row["config"], **_clause(row)} for row in BAD_OPTIONS]
    tried = {known.name for config in configs for key in config if (known := dialects.CONFIG.get(table.underscored(key)))}
    tried |= {"properties"}
    assert {o.name for o in table.OPTIONS if o.type not in (values.TEXT, values.BOOLEAN)} - tried == set()


def _clause(row: dict[str, Any]) -> dict[str, Any]:
    clause = row["config"].get("with_options")
    return clause if isinstance(clause, dict) else {}


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


def test_every_option_of_the_table_has_its_attribute() -> None:
    attributes = {f.name for f in fields(ModelOptions)}
    without = {o.name for o in table.OPTIONS if o.name not in attributes}
    assert without == {"format"} | {o.name for o in table.OPTIONS if o.no_effect}


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
    "half in config, half pasted": {
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
def test_same_model_in_another_dialect_has_equal_options(dialect: str) -> None:
    assert upsert(**DIALECTS[dialect]) == upsert(**DIALECTS["config"])
    assert upsert(**DIALECTS[dialect]).value_format_options == {"field_delimiter": "|"}


def test_huawei_append_sink_of_cars_is_read() -> None:
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


def test_flink_source_of_user_behavior_is_read() -> None:
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


def test_old_and_new_name_of_the_delivery_guarantee_are_one_option() -> None:
    old, new = ({"with_options": {name: "exactly-once"}} for name in ("sink.semantic", "sink.delivery-guarantee"))
    assert upsert(**old) == upsert(**new)


def test_flink_partitioner_class_is_a_custom_partitioner() -> None:
    parsed = upsert(with_options={"sink.partitioner": "acme.place.by_region"})
    huawei = {"connector.sink-partitioner": "custom", "connector.sink-partitioner-class": "acme.place.by_region"}
    assert (parsed.sink_partitioner, parsed.sink_partitioner_class) == ("custom", "acme.place.by_region")
    assert upsert(with_options=huawei) == parsed


def test_key_fields_of_flink_are_the_unique_key() -> None:
    parsed = parse("kafka", "users", {"with_options": {"connector": "kafka", "key.fields": "id;name", "key.format": "json"}})
    assert parsed.unique_key == ("id", "name")


def test_specific_format_wins_over_format() -> None:
    parsed = upsert(format="csv", key_format="json", csv_null_literal="-", value_csv_null_literal="n/a")
    assert (parsed.key_format, parsed.value_format) == ("json", "csv")
    assert (parsed.key_format_options, parsed.value_format_options) == ({}, {"null_literal": "n/a"})


def test_change_event_format_is_for_values_and_keys_stay_json() -> None:
    parsed = parse("kafka", "users", {"unique_key": "id", "format": "debezium-json", "max_deletes": "5%"})
    assert (parsed.key_format, parsed.value_format, parsed.update_mode) == ("json", "debezium-json", "upsert")
    assert parsed.max_deletes == Limit(percent=5)


def test_format_options_have_short_names_and_types() -> None:
    parsed = upsert(**{"json.timestamp-format.standard": "iso-8601", "value.json.encode.decimal-as-plain-number": "true"})
    assert parsed.key_format_options == {"timestamp_format_standard": "ISO-8601"}
    assert parsed.value_format_options == {"timestamp_format_standard": "ISO-8601", "encode_decimal_as_plain_number": True}


def test_registry_options_of_old_flink_are_read() -> None:
    parsed = upsert(value_format="avro-confluent", **{"value.avro-confluent.schema-registry.url": "http://registry:8081"})
    assert parsed.value_format_options == {"url": "http://registry:8081"}


def test_source_reads_several_topics_with_a_group_from_its_offsets() -> None:
    parsed = source(topic="a;b", **{"properties.group.id": "g"})
    assert parsed.topics == ("a", "b")
    assert (parsed.scan_startup_mode, parsed.scan_bounded_mode) == ("group-offsets", "latest-offset")
    assert source().scan_startup_mode == "earliest-offset"


def test_source_reads_offsets_and_times() -> None:
    parsed = source(
        scan_startup_mode="specific-offsets",
        scan_startup_specific_offsets="partition:0,offset:42;partition:1,offset:300",
        scan_bounded_mode="timestamp",
        scan_bounded_timestamp_millis="1700000000000",
    )
    assert parsed.scan_startup_specific_offsets == {0: 42, 1: 300}
    assert parsed.scan_bounded_timestamp_millis == 1700000000000


def test_parse_errors_are_ignored_by_either_name() -> None:
    assert source(ignore_parse_errors=True).ignore_parse_errors
    assert source(with_options={"connector": "kafka", "format": "csv", "csv.ignore-parse-errors": "true"}).ignore_parse_errors
    assert not source().ignore_parse_errors


@pytest.mark.parametrize(
    ("text", "expected"), [(100, Limit(count=100)), ("7", Limit(count=7)), ("12.5 %", Limit(percent=12.5)), (0, Limit(count=0))]
)
def test_max_deletes_is_a_count_or_a_percentage(text: Any, expected: Limit) -> None:
    assert upsert(max_deletes=text).max_deletes == expected


def test_limit_allows_up_to_itself() -> None:
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
def test_durations_are_read_as_flink_reads_them(text: Any, expected: timedelta) -> None:
    assert values.DURATION.parse(text) == expected


@pytest.mark.parametrize("text", ["a:9092", "[::1]:9092", "SASL_SSL://b-1.kafka:9096,b-2.kafka:9096"])
def test_server_lists_that_kafka_takes_are_taken(text: str) -> None:
    assert upsert(bootstrap_servers=text).bootstrap_servers == text


@pytest.mark.parametrize(("text", "expected"), [("\t", "\t"), (r"\t", "\t"), (r"\u0001", "\x01"), ("\\", "\\"), (r"\\", "\\")])
def test_delimiters_are_read_with_javas_escapes(text: str, expected: str) -> None:
    assert upsert(format="csv", csv_field_delimiter=text).value_format_options == {"field_delimiter": expected}


def test_none_is_as_if_it_were_not_there() -> None:
    assert upsert(topic=None, properties=None, with_options=None, partitions=None) == upsert()
    assert upsert(properties={"acks": None}) == upsert()


# Who may be mistaken for an option, and who is left alone


def test_config_of_dbt_is_never_ours_and_never_warned_about() -> None:
    from dbt.adapters.spark.impl import SparkConfig
    from dbt.artifacts.resources.v1.model import ModelConfig

    config = ModelConfig(materialized="upsert_kafka", unique_key="id").to_dict()
    spark = {f.name: "x" for f in fields(SparkConfig)}
    assert parse("upsert_kafka", "users", {**spark, **config}).warnings == ()


def test_users_own_config_keys_are_left_alone() -> None:
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
    ],
)
def test_near_miss_of_an_option_is_a_warning_that_names_it(key: str, near: str) -> None:
    assert upsert(**{key: "x"}).warnings == (f"users: {key} is not an option and has no effect; did you mean {near}?",)


def test_huawei_name_outside_of_with_options_is_a_warning() -> None:
    assert upsert(**{"connector.topic": "x"}).warnings == (
        "users: connector.topic is not read here: it belongs into with_options",
    )


def test_property_that_no_client_knows_is_a_warning_with_the_nearest_name() -> None:
    assert upsert(properties={"linger.msec": 5}).warnings == (
        "users: properties linger.msec: no Kafka client knows this property; did you mean linger.ms?",
    )
    assert upsert(properties={"linger.msec": 5}).properties == {"linger.msec": "5"}


def test_unknown_topic_setting_is_a_warning_with_the_nearest_name() -> None:
    parsed = upsert(topic_config={"retention.mss": 5, "min.compaction.lag.ms": 1})
    assert parsed.topic_config == {"retention.mss": "5", "min.compaction.lag.ms": "1"}
    assert parsed.warnings == ("users: topic_config retention.mss: Kafka has no such topic setting; did you mean retention.ms?",)


def test_topic_that_forgets_rows_is_a_warning() -> None:
    assert "without compact" in upsert(topic_config={"cleanup.policy": "delete"}).warnings[0]
    assert upsert(topic_config={"cleanup.policy": "compact,delete"}).warnings == ()


def test_format_option_without_effect_is_checked_and_told() -> None:
    parsed = upsert(value_json_map_null_key_mode="DROP")
    assert parsed.warnings == ("users: value_json_map_null_key_mode has no effect: maps in Spark have no null keys",)


def test_option_without_effect_is_checked_and_told() -> None:
    assert upsert(with_options={"sink.buffer-flush.max-rows": "100"}).warnings == (
        "users: with_options 'sink.buffer-flush.max-rows' has no effect: a run writes each key once",
    )


@pytest.mark.parametrize("version", ["0.10", "0.11"])
def test_connector_version_is_accepted_in_silence(version: str) -> None:
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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    st.sampled_from(table.MATERIALIZATIONS),
    st.dictionaries(st.sampled_from([*dialects.CONFIG, *dialects.FLINK, "properties", "with_options"]), _WILD, max_size=6),
    st.none()
    | st.dictionaries(st.sampled_from([*dialects.FLINK, *dialects.HUAWEI, "connector", "connector.type"]), _WILD, max_size=6),
)
def test_whatever_is_configured_is_read_or_refused_with_options_named(materialized: str, config: Any, clause: Any) -> None:
    try:
        parse(materialized, "users", config | ({} if clause is None else {"with_options": clause}))
    except OptionsError as error:
        assert error.msg.startswith("users: ") and "\n  - " in error.msg


# Secrets, echoes, availability

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


def test_secret_is_not_in_the_options_text() -> None:
    assert SECRET not in repr(upsert(properties={"client.id": SECRET}))


def test_secret_that_a_config_provider_holds_may_be_referred_to() -> None:
    reference = "${vault:kafka:jaas}"
    assert upsert(properties={"sasl.jaas.config": reference}).properties == {"sasl.jaas.config": reference}


def test_long_value_is_cut() -> None:
    assert len(problems(topic="x y" * 1000)) < 300


def test_option_that_needs_a_wrong_option_does_not_complain_too() -> None:
    assert problems(sink_partitioner="custom", sink_partitioner_class="nodots").count("\n  - ") == 1
    assert problems(format="cvs", csv_null_literal="-").count("\n  - ") == 1


def test_option_that_is_not_built_yet_is_refused_and_not_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        table, "NOT_AVAILABLE_YET", {"headers": table.EVERY_VALUE, "key_format": ("csv",), "value_format": ("csv",)}
    )
    assert "headers={'a': 'id'}: is not available yet" in problems(headers={"a": "id"})
    assert problems(format="csv").endswith(
        "1 problem with its options, nothing was touched\n  - format='csv': is not available yet"
    )
    assert upsert(format="json").value_format == "json"


def test_format_option_that_is_not_built_yet_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "NOT_AVAILABLE_YET", {"json_encode_ignore_null_fields": table.EVERY_VALUE})
    assert "value_json_encode_ignore_null_fields=true: is not available yet" in problems(
        value_json_encode_ignore_null_fields=True
    )


def test_what_is_not_available_yet_are_options_and_values_of_the_table() -> None:
    by_name: dict[str, Any] = {o.name: o for o in table.OPTIONS} | {k.name: k for k in dialects.CONFIG.values()}
    for name, later in NOT_AVAILABLE_YET.items():
        assert name in by_name
        if later != table.EVERY_VALUE:
            assert [by_name[name].type.parse(value) for value in later] == list(later)


def _names_used_in_the_package() -> set[str]:
    """Attributes that are read and texts that are written anywhere but where options are checked."""
    trees = [ast.parse(p.read_text()) for p in PACKAGE.rglob("*.py") if p.parent.name != "options"]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return {n.attr for n in nodes if isinstance(n, ast.Attribute)} | texts


def test_no_option_is_checked_and_then_ignored() -> None:
    acted_on = _names_used_in_the_package() | {"format"}
    unread = {o.name for o in table.OPTIONS if not o.no_effect and o.name not in acted_on}
    unread |= {
        table.underscored(f"{format_}.{o.name}")
        for o in FORMAT_OPTIONS
        for format_ in o.formats
        if not o.no_effect and o.type.describe != "refused" and o.short not in acted_on
    }
    assert unread - NOT_AVAILABLE_YET.keys() == set()


def test_columns_are_found_without_regard_to_case() -> None:
    check_columns(upsert(unique_key="ID", exclude_columns=["Price"]), "users", COLUMNS)


def test_prefix_is_that_of_every_key_column() -> None:
    prefixed = upsert(unique_key=["k_id", "k_name"], key_fields_prefix="k_", value_fields_include="EXCEPT_KEY")
    check_columns(prefixed, "users", ["k_id", "k_name", "price"])
