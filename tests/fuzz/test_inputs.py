"""Hostile inputs: any option, profile or message is accepted, or refused with an error of the adapter.

No test needs a cluster: options are checked before any I/O, and messages are decoded by Spark. `tests.property_tests` sets the
number of examples.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from dbt_common.dataclass_schema import ValidationError
from dbt_common.exceptions import DbtRuntimeError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from dbt.adapters.upsert_kafka import kafka_properties, options
from dbt.adapters.upsert_kafka.catalog import reading
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials, is_server_list
from dbt.adapters.upsert_kafka.errors import OptionsError, UpsertKafkaError
from dbt.adapters.upsert_kafka.formats import Field, Side, records
from dbt.adapters.upsert_kafka.formats.avro_confluent import AvroConfluent
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.options.dialects import CONFIG, FLINK, HUAWEI
from dbt.adapters.upsert_kafka.options.table import KAFKA, KAFKA_SOURCE, UPSERT_KAFKA
from dbt.adapters.upsert_kafka.options.values import Limit
from dbt.adapters.upsert_kafka.sql import quote_identifier, quote_literal, split_statements
from tests.property_tests import EXAMPLES

HOSTILE = [
    "'",
    '"',
    "`",
    "\\",
    "\n",
    "\0",
    "${env:HOME}",
    "${",
    "}",
    ";",
    "--",
    "/*",
    "../",
    "%s",
    "{{ 1 }}",
    "٣",
    "\ud800",
    "😀",
]
WORDS = ["", "true", "1", "-1", "0", "id", "json", "avro", "earliest-offset", "exactly-once", "10%", "5 min", "9" * 5000, "a:1"]
text = st.one_of(
    st.text(max_size=20),
    st.sampled_from(HOSTILE + WORDS),
    st.lists(st.sampled_from(HOSTILE + WORDS), max_size=6).map("".join),
)
scalar = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), text, st.binary(max_size=4))
anything = st.recursive(
    scalar, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(text, inner, max_size=3)), max_leaves=4
)
materialization = st.sampled_from([UPSERT_KAFKA, KAFKA, KAFKA_SOURCE])


def parsed(kind: str, config: dict[str, Any]) -> options.ModelOptions | None:
    """The options, or None if they are refused. The only allowed error is OptionsError, with one line for each problem."""
    try:
        return options.parse(kind, "model", {"materialized": kind, **config})
    except OptionsError as error:
        first, *problems = str(error.msg).split("\n")
        assert first.startswith("model: ") and problems
        assert all(problem.startswith("  - ") for problem in problems)
        return None


names = st.one_of(st.sampled_from(sorted({*CONFIG, *FLINK, *HUAWEI})), st.sampled_from(sorted(kafka_properties.PROPERTIES)), text)


@given(materialization, st.dictionaries(names, anything, max_size=5))
@example(KAFKA_SOURCE, {"topic": "t", "scan_topic_partition_discovery_interval": "9" * 30 + " d"})
def test_any_config_is_accepted_or_refused(kind: str, config: dict[str, Any]) -> None:
    parsed(kind, config)


clause = st.one_of(
    anything,
    st.dictionaries(names, anything, max_size=5),
    st.lists(st.tuples(names, text), max_size=5).map(lambda pairs: ", ".join(f"'{k}' = '{v}'" for k, v in pairs)),
    st.lists(st.sampled_from(["'", "''", "=", ",", "WITH (", ")", " ", "topic", "--", "\n", ";"]), max_size=40).map("".join),
)


@given(materialization, clause)
@example(UPSERT_KAFKA, "'a' = 'b'" + ", 'a' = 'b'" * 2000 + " '")
@example(UPSERT_KAFKA, "'" * 5001)
@example(UPSERT_KAFKA, "WITH (" * 2000)
def test_any_with_clause_is_accepted_or_refused(kind: str, written: Any) -> None:
    parsed(kind, {"with_options": written})


@given(materialization, st.dictionaries(st.one_of(st.sampled_from(sorted(kafka_properties.PROPERTIES)), text), anything))
def test_accepted_client_properties_give_spark_options(kind: str, properties: dict[str, Any]) -> None:
    found = parsed(kind, {"unique_key": "id", "topic": "t", "properties": properties})
    if found is not None:
        KafkaSettings("a:1", found.properties).spark_source()


servers = st.one_of(text, st.lists(st.one_of(text, st.just("a:1"), st.just("[::1]:9092"), st.just("a:65536"))).map(",".join))


@given(servers)
@example("a:9092\n")
@example("a:9092,")
@example("a:٣")
def test_accepted_server_list_has_a_host_and_a_port_in_each_part(listed: str) -> None:
    if is_server_list(listed):
        assert all(re.fullmatch(r"\s*[\w.\[\]:-]+:[0-9]{1,5}\s*", server) for server in listed.split(","))
    found = parsed(UPSERT_KAFKA, {"unique_key": "id", "topic": "t", "bootstrap_servers": listed})
    assert found is None or "\n" not in str(found.bootstrap_servers)


offsets = st.one_of(
    text,
    st.lists(st.sampled_from(["partition:", "offset:", "0", "42", ",", ";", ":", "-1", " ", "9" * 30, "x"]), max_size=12).map(
        "".join
    ),
    anything,
)


@given(offsets)
@example("partition:" + "9" * 5000 + ",offset:1")
def test_accepted_specific_offsets_are_not_negative(asked: Any) -> None:
    config = {"topic": "t", "scan_startup_mode": "specific-offsets", "scan_startup_specific_offsets": asked}
    found = parsed(KAFKA_SOURCE, config)
    if found is not None:
        assert all(p >= 0 and o >= 0 for p, o in found.scan_startup_specific_offsets.items())


@given(st.one_of(text, st.text("ab./_-\n\0", max_size=260)))
@example("..")
@example("a\n")
@example("../../etc/passwd")
def test_accepted_topic_name_follows_the_rule_of_kafka(name: str) -> None:
    parsed(UPSERT_KAFKA, {"unique_key": "id", "topic": name})
    try:
        topics.check_name(name)
    except UpsertKafkaError:
        return
    assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) and name not in (".", "..")


@given(st.one_of(text, st.integers(), st.floats(), st.just("1e400%"), st.just("9" * 400 + "%")))
def test_accepted_max_deletes_is_a_limit(value: Any) -> None:
    found = parsed(UPSERT_KAFKA, {"unique_key": "id", "topic": "t", "max_deletes": value})
    assert found is None or isinstance(found.max_deletes, Limit)


profile = st.dictionaries(
    st.sampled_from(["schema", "bootstrap_servers", "kafka", "spark", "jars", "master", "remote", "topic_defaults", "x"]),
    anything,
)


@given(profile)
def test_accepted_profile_gives_credentials(data: dict[str, Any]) -> None:
    try:
        UpsertKafkaCredentials.validate(data)
    except (DbtRuntimeError, ValidationError):
        return
    UpsertKafkaCredentials.from_dict(data)


jaas = st.lists(
    st.sampled_from(["username=", "password=", '"', "'", "\\", '\\"', ";", " ", "required", "a", "=", "🔑"]), max_size=12
)


@given(jaas.map("".join), st.sampled_from(["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "plain", ""]), text)
def test_login_is_accepted_or_refused_without_the_password(config: str, mechanism: str, extra: str) -> None:
    secured = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": config}
    try:
        arguments = KafkaSettings("a:1", {**secured, "sasl.oauthbearer.token.endpoint.url": extra}).python_client()
    except OptionsError as error:
        assert "password=" not in str(error) or "…" in str(error)
        return
    assert arguments["sasl_mechanism"] == mechanism


ID = Field("id", "id", IntegerType())
schema = st.one_of(
    text,
    anything.map(lambda value: json.dumps(value, default=str)),
    st.recursive(
        st.sampled_from(["int", "string", "null", "bytes"]),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.fixed_dictionaries({"type": st.one_of(st.sampled_from(["record", "array", "map", "fixed"]), inner)}, optional={
                "items": inner, "values": inner, "fields": st.lists(st.one_of(inner, st.fixed_dictionaries({"name": text})))
            }),
        ),
    ).map(json.dumps),
)  # fmt: skip


@given(schema)
@example("[" * 5000)
@example('{"type": "record"}')
@example('{"type": "record", "name": "r", "fields": [{"name": "id", "type": ["null", "int"], "default": null}]}')
def test_avro_schema_is_refused_unless_it_describes_the_columns(written: str) -> None:
    found = parsed(UPSERT_KAFKA, {"unique_key": "id", "value_format": "avro-confluent", "value_avro_confluent_schema": written})
    if found is None:
        return
    problems = AvroConfluent().problems(Side("value", "t", (ID,), found.value_format_options))
    assert problems == [] or "does not describe the columns" in problems[0]
    if problems == []:
        assert [field["name"] for field in json.loads(written)["fields"]] == ["id"]


@given(st.text(max_size=40))
@example("a\\")
def test_quoted_text_does_not_end_a_statement(value: str) -> None:
    statement = f"SELECT {quote_literal(value)} AS {quote_identifier(value)}"
    assert split_statements(f"{statement}; {statement}") == [statement, statement]


def payloads(format: str) -> st.SearchStrategy[bytes]:
    row = st.one_of(
        st.none(), st.dictionaries(st.sampled_from(["id", "name", "x"]), scalar.filter(lambda v: not isinstance(v, bytes)))
    )
    if format == "debezium-json":
        message = st.fixed_dictionaries(
            {}, optional={"before": row, "after": row, "op": st.sampled_from(["c", "u", "d", "r", "x", 1, None]), "payload": row}
        )
    else:
        rows = st.one_of(st.none(), row, st.lists(row, max_size=3))
        kind = st.sampled_from(["INSERT", "UPDATE", "DELETE", "CREATE", "x", 1, None])
        message = st.fixed_dictionaries({}, optional={"data": rows, "old": rows, "type": kind, "table": text, "database": text})
    written = message.map(lambda value: json.dumps(value).encode())
    cut = st.tuples(written, st.integers(0, 80)).map(lambda pair: pair[0][: pair[1]])
    return st.one_of(written, cut, st.binary(max_size=30), anything.map(lambda value: json.dumps(value, default=str).encode()))


BATCH = 100
"""Messages that one Spark job decodes: a job takes longer than the messages in it."""


@pytest.mark.parametrize("format", ["debezium-json", "canal-json", "json", "csv"])
def test_any_message_is_decoded_or_skipped(spark: SparkSession, format: str) -> None:
    config = {"materialized": KAFKA_SOURCE, "topic": "t", "value_format": format, "ignore_parse_errors": True}
    layout = records.layout(
        options.parse(KAFKA_SOURCE, "events", config),
        "t",
        StructType([StructField("id", IntegerType()), StructField("name", StringType())]),
    )
    columns = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, headers binary"
    query = reading.query(layout, "fuzzed", per_key=False, skips=True)
    batches = max(2, EXAMPLES // BATCH)

    @settings(max_examples=batches)
    @given(st.lists(payloads(format if "json" in format else "canal-json"), min_size=BATCH, max_size=BATCH))
    def decoded(messages: list[bytes]) -> None:
        rows = [(None, message, "t", 0, i, None, None) for i, message in enumerate(messages)]
        spark.createDataFrame(rows, columns).createOrReplaceTempView("fuzzed")
        rows_back = spark.sql(f"SELECT kafka_offset FROM {query}").collect()
        assert {row[0] for row in rows_back} <= set(range(BATCH))

    decoded()
