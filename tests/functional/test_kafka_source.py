"""`kafka_source` on a real topic: the offsets that a run reads in each mode, and the rows that it decodes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.catalog import views
from dbt.adapters.upsert_kafka.errors import OptionsError, SchemaRegistryError, UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import groups
from dbt.adapters.upsert_kafka.source import slices
from dbt.adapters.upsert_kafka.source.slices import Slice
from tests.counts import counts
from tests.functional.source_tables import Sources
from tests.functional.topic_writer import Message, write
from tests.tables import Table

# Recent, so that retention does not delete the records.
HOUR_AGO = int(time.time() * 1000) - 3_600_000
CDC_COLUMNS = {"id": "bigint", "name": "string", "weight": "decimal(6,3)"}


@pytest.fixture
def sources(spark: SparkSession, broker: str, topic_name: str) -> Iterator[Sources]:
    source_models = Sources(spark, broker, topic_name)
    yield source_models
    spark.sql(f"DROP VIEW IF EXISTS {views.name(source_models.relation)}")
    spark.sql(f"DROP TABLE IF EXISTS {views.name(source_models.relation.topic_table)}")


@pytest.fixture
def admin(broker: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker)
    yield client
    client.close()


@pytest.fixture(scope="module")
def history(broker: str) -> str:
    """A topic of three partitions: 0 has the offsets [0, 4), 1 is empty, 2 has [3, 6) because [0, 3) were deleted.

    The record at offset n has the timestamp HOUR_AGO plus n + 1 seconds.
    """
    topic = "kafka_source.history"
    messages = [Message({"n": n}, partition=0, timestamp=HOUR_AGO + 1000 * (n + 1)) for n in range(4)]
    messages += [Message({"n": 10 + n}, partition=2, timestamp=HOUR_AGO + 1000 * (n + 1)) for n in range(6)]
    write(broker, topic, messages, partitions=3)
    client = KafkaAdminClient(bootstrap_servers=broker)
    try:
        client.delete_records({TopicPartition(topic, 2): 3})
        groups.commit(client, "history-group", {(topic, 0): 2, (topic, 1): 0, (topic, 2): 5})
        groups.commit(client, "lost-group", {(topic, 0): 2, (topic, 1): 0, (topic, 2): 1})
        groups.commit(client, "half-group", {(topic, 0): 3})
    finally:
        client.close()
    return topic


def specific(**offsets: int) -> str:
    return ";".join(f"partition:{name[1:]},offset:{offset}" for name, offset in offsets.items())


MODES: dict[str, tuple[dict[str, Any], dict[str, list[int]]]] = {
    "default: earliest to latest": ({}, {"0": [0, 4], "1": [0, 0], "2": [3, 6]}),
    "earliest-offset": ({"scan_startup_mode": "earliest-offset"}, {"0": [0, 4], "1": [0, 0], "2": [3, 6]}),
    "latest-offset": ({"scan_startup_mode": "latest-offset"}, {"0": [4, 4], "1": [0, 0], "2": [6, 6]}),
    "timestamp between records": (
        {"scan_startup_mode": "timestamp", "scan_startup_timestamp_millis": HOUR_AGO + 2500},
        {"0": [2, 4], "1": [0, 0], "2": [3, 6]},
    ),
    "timestamp of a record": (
        {"scan_startup_mode": "timestamp", "scan_startup_timestamp_millis": HOUR_AGO + 4000},
        {"0": [3, 4], "1": [0, 0], "2": [3, 6]},
    ),
    "timestamp after a partition's last record": (
        {"scan_startup_mode": "timestamp", "scan_startup_timestamp_millis": HOUR_AGO + 5000},
        {"0": [4, 4], "1": [0, 0], "2": [4, 6]},
    ),
    "specific-offsets of some partitions": (
        {"scan_startup_mode": "specific-offsets", "scan_startup_specific_offsets": specific(p0=1, p2=4)},
        {"0": [1, 4], "1": [0, 0], "2": [4, 6]},
    ),
    "specific-offsets at the end": (
        {"scan_startup_mode": "specific-offsets", "scan_startup_specific_offsets": specific(p0=4)},
        {"0": [4, 4], "1": [0, 0], "2": [3, 6]},
    ),
    "expired specific-offsets with on_offset_out_of_range=earliest": (
        {
            "scan_startup_mode": "specific-offsets",
            "scan_startup_specific_offsets": specific(p2=1),
            "on_offset_out_of_range": "earliest",
        },
        {"0": [0, 4], "1": [0, 0], "2": [3, 6]},
    ),
    "default with a group: group-offsets": (
        {"properties": {"group.id": "history-group"}},
        {"0": [2, 4], "1": [0, 0], "2": [5, 6]},
    ),
    "expired group-offsets with on_offset_out_of_range=earliest": (
        {"properties": {"group.id": "lost-group"}, "on_offset_out_of_range": "earliest"},
        {"0": [2, 4], "1": [0, 0], "2": [3, 6]},
    ),
    "group-offsets with auto.offset.reset=earliest": (
        {"properties": {"group.id": "half-group", "auto.offset.reset": "earliest"}},
        {"0": [3, 4], "1": [0, 0], "2": [3, 6]},
    ),
    "group-offsets with auto.offset.reset=latest": (
        {"properties": {"group.id": "new-group", "auto.offset.reset": "latest"}},
        {"0": [4, 4], "1": [0, 0], "2": [6, 6]},
    ),
    "bounded by timestamp": (
        {"scan_bounded_mode": "timestamp", "scan_bounded_timestamp_millis": HOUR_AGO + 5000},
        {"0": [0, 4], "1": [0, 0], "2": [3, 4]},
    ),
    "bounded by specific-offsets of some partitions": (
        {"scan_bounded_mode": "specific-offsets", "scan_bounded_specific_offsets": specific(p0=2)},
        {"0": [0, 2], "1": [0, 0], "2": [3, 6]},
    ),
    "bounded by group-offsets": (
        {
            "scan_startup_mode": "earliest-offset",
            "scan_bounded_mode": "group-offsets",
            "properties": {"group.id": "history-group"},
        },
        {"0": [0, 2], "1": [0, 0], "2": [3, 5]},
    ),
    "bounded before the start": (
        {
            "scan_startup_mode": "timestamp",
            "scan_startup_timestamp_millis": HOUR_AGO + 4000,
            "scan_bounded_mode": "timestamp",
            "scan_bounded_timestamp_millis": HOUR_AGO + 2000,
        },
        {"0": [3, 3], "1": [0, 0], "2": [3, 3]},
    ),
}


def resolve(admin: KafkaAdminClient, config: dict[str, Any]) -> Slice:
    return slices.resolve(admin, "events", options.parse("kafka_source", "events", config))


@pytest.mark.parametrize("mode", MODES)
def test_mode_resolves_to_offsets(mode: str, admin: KafkaAdminClient, history: str) -> None:
    config, expected = MODES[mode]
    covered = resolve(admin, {"topic": history, **config})
    assert covered.as_dict() == {history: expected}
    assert Slice.from_dict(covered.as_dict()) == covered


def test_relation_contains_the_records_of_the_slice(sources: Sources, history: str) -> None:
    config, expected = MODES["group-offsets with auto.offset.reset=earliest"]
    reading = sources.run({"n": "int"}, "kafka_partition, kafka_offset, n", topic=history, **config)
    assert (reading.slice, reading.offsets, reading.group) == ({history: expected}, 4, "half-group")
    assert sources.rows() == [(0, 3, 3), (2, 3, 13), (2, 4, 14), (2, 5, 15)]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"scan_startup_mode": "specific-offsets", "scan_startup_specific_offsets": specific(p2=1)},
            r"partition 2: scan_startup_specific_offsets has offset 1, which has expired: .* \[3, 6\)\. Set on_offset",
        ),
        (
            {"scan_startup_mode": "specific-offsets", "scan_startup_specific_offsets": specific(p0=9, p7=0)},
            r"contains partition 7, .* has partitions 0 to 2\n.* 0: .* offset 9, which does not exist yet: .* \[0, 4\)",
        ),
        ({"properties": {"group.id": "lost-group"}}, "partition 2: group 'lost-group' has committed offset 1, which has expired"),
        (
            {"properties": {"group.id": "half-group"}},
            r"group 'half-group' has no committed offset for topic 'kafka_source.history', partitions 1, 2\. Set auto.offset",
        ),
        (
            {"scan_bounded_mode": "specific-offsets", "scan_bounded_specific_offsets": specific(p1=1)},
            r"partition 1: scan_bounded_specific_offsets has offset 1, but the partition ends at 0\. .* does not wait",
        ),
        ({"topic": "kafka_source.nowhere"}, "events: topic 'kafka_source.nowhere' does not exist"),
        ({"topic": None, "topic_pattern": "nowhere-.*"}, "topic_pattern='nowhere-.*' matches no topic"),
    ],
)
def test_offsets_out_of_range_are_refused(config: dict[str, Any], message: str, admin: KafkaAdminClient, history: str) -> None:
    with pytest.raises(UpsertKafkaError, match=f"(?s){message}"):
        resolve(admin, {"topic": history, **config})


def test_records_and_partitions_added_after_the_run_are_not_read(
    sources: Sources, broker: str, admin: KafkaAdminClient, topic_name: str
) -> None:
    write(broker, topic_name, [Message({"n": 1})])
    sources.run({"n": "int"}, "n", topic=topic_name)
    admin.create_partitions({topic_name: 2})
    admin.wait_for_topics([topic_name])
    write(broker, topic_name, [Message({"n": 2}), Message({"n": 3}, partition=1)])
    assert sources.rows() == [(1,)]
    assert sources.run({"n": "int"}, "n", topic=topic_name).slice == {topic_name: {"0": [0, 2], "1": [0, 1]}}
    assert sources.rows() == [(1,), (2,), (3,)]


def test_metadata_columns_are_available(sources: Sources, broker: str, topic_name: str) -> None:
    message = Message({"user": "x", "extra": 1}, key=b"\x01", partition=1, timestamp=HOUR_AGO, headers=[("trace", b"7")])
    write(broker, topic_name, [message], partitions=2)
    sources.run({"user": "string", "missing": "int"}, topic=topic_name)
    [row] = sources.table.selectExpr("*", "unix_millis(kafka_timestamp) AS millis").collect()
    assert (row["user"], row["missing"], row["kafka_topic"], row["kafka_partition"], row["kafka_offset"]) == (
        "x",
        None,
        topic_name,
        1,
        0,
    )
    assert (bytes(row["kafka_key"]), row["millis"]) == (b"\x01", HOUR_AGO)
    assert [(h["key"], bytes(h["value"])) for h in row["kafka_headers"]] == [("trace", b"7")]


def test_list_and_pattern_read_several_topics(sources: Sources, broker: str, topic_name: str) -> None:
    for name in ("a", "b", "other"):
        write(broker, f"{topic_name}.{name}", [Message({"n": name})])
    sources.run({"n": "string"}, "n, kafka_topic", topic=f"{topic_name}.a;{topic_name}.other")
    assert sources.rows() == [("a", f"{topic_name}.a"), ("other", f"{topic_name}.other")]
    sources.run({"n": "string"}, "n", topic_pattern=f"{topic_name}[.][a-b]")
    assert sources.rows() == [("a",), ("b",)]


def test_undecodable_message_fails_with_its_offset_or_is_skipped_and_counted(
    sources: Sources, broker: str, topic_name: str
) -> None:
    write(
        broker,
        topic_name,
        [Message({"n": 1}), Message("{broken"), Message({"n": "x"}), Message(None, key=b"k"), Message({"n": 2})],
    )
    sources.run({"n": "int"}, "n", topic=topic_name)
    message = rf"Topic {topic_name}, partition 0, offset 1: the value is not json .*: \{{broken. Set ignore_parse_errors=true"
    with pytest.raises(Exception, match=message):
        sources.rows()
    assert sources.run({"n": "int"}, "n", topic=topic_name, ignore_parse_errors=True).skipped == 2
    assert sources.rows() == [(1,), (2,)]


@pytest.mark.parametrize("format", ["json", "csv"])
def test_source_with_unique_key_returns_the_last_value_of_each_key(
    format: str, sources: Sources, broker: str, topic_name: str
) -> None:
    text = {"json": ('{{"id":{0}}}', '{{"n":"{1}"}}'), "csv": ("{0}", "{1}")}[format]

    def message(key: int, value: str | None, partition: int = 0, timestamp: int = HOUR_AGO) -> Message:
        return Message(value and text[1].format(key, value), text[0].format(key), partition, timestamp)

    messages = [message(1, "a"), message(2, "b"), message(1, "c"), message(3, "d"), message(2, None)]
    # Another writer wrote key 3 later, to another partition.
    write(broker, topic_name, [*messages, message(3, "e", partition=1, timestamp=HOUR_AGO + 1)], partitions=2)
    sources.run(
        {"k_id": "int", "n": "string"}, "k_id, n, kafka_partition, kafka_offset", topic=topic_name, unique_key="k_id",
        format=format, value_fields_include="EXCEPT_KEY", key_fields_prefix="k_",
    )  # fmt: skip
    assert sources.rows() == [(1, "c", 0, 2), (3, "e", 1, 0)]


def test_raw_returns_the_message_unchanged(sources: Sources, broker: str, topic_name: str) -> None:
    write(broker, topic_name, [Message("no json"), Message(None, key=b"k")])
    sources.run({"line": "string"}, "kafka_offset, line", topic=topic_name, format="raw")
    assert sources.rows() == [(0, "no json"), (1, None)]


def debezium(op: str, before: Any, after: Any) -> dict[str, Any]:
    origin = {"version": "3.0", "connector": "mysql", "name": "shop", "db": "inventory", "table": "products"}
    return {"before": before, "after": after, "source": origin, "op": op, "ts_ms": 1589362330904, "transaction": None}


def product(id: Any, name: str, weight: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "weight": weight}


# Messages of Debezium's MySQL connector, with the tombstone that follows a delete.
DEBEZIUM = [
    debezium("r", None, product(1, "scooter", "3.140")),
    debezium("c", None, product(2, "battery", "8.1")),
    debezium("u", product(1, "scooter", "3.140"), product(1, "scooter", "5.15")),
    debezium("c", None, product(3, "drill", None)),
    debezium("d", product(2, "battery", "8.1"), None),
    None,
]
# Messages of Canal: all values are strings, a message contains several rows, `old` contains the changed columns.
CANAL: list[Any] = [
    {"data": None, "old": None, "type": "CREATE", "isDdl": True, "table": "products", "sql": "create table"},
    {
        "data": [product("1", "scooter", "3.140"), product("2", "battery", "8.1")], "old": None, "type": "INSERT",
        "table": "products", "id": 0, "ts": 1589373515477, "pkNames": ["id"], "sqlType": {"id": 4}, "isDdl": False,
    },
    {"data": [product("1", "scooter", "5.15")], "old": [{"weight": "3.140"}], "type": "UPDATE", "table": "products"},
    {"data": [product("3", "drill", None)], "old": None, "type": "INSERT", "table": "products"},
    {"data": [product("9", "else", "1")], "old": None, "type": "INSERT", "table": "orders"},
    {"data": [product("2", "battery", "8.1")], "old": None, "type": "DELETE", "table": "products"},
]  # fmt: skip
CHANGELOG = [
    ("+I", 1, "scooter", "3.140"),
    ("+I", 2, "battery", "8.100"),
    ("-U", 1, "scooter", "3.140"),
    ("+U", 1, "scooter", "5.150"),
    ("+I", 3, "drill", None),
    ("-D", 2, "battery", "8.100"),
]
CURRENT = [(1, "scooter", "5.150"), (3, "drill", None)]
SHOWN = "id, name, CAST(weight AS STRING) AS weight"

CDC: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "debezium": (DEBEZIUM, {"format": "debezium-json"}),
    "debezium with schema": (
        [m and {"schema": {"type": "struct", "fields": []}, "payload": m} for m in DEBEZIUM],
        {"format": "debezium-json", "debezium_json_schema_include": True},
    ),
    "canal": (CANAL, {"format": "canal-json", "canal_json_table_include": "prod.*"}),
}


@pytest.mark.parametrize("stream", CDC)
def test_cdc_source_returns_changes_or_with_unique_key_the_current_table(
    stream: str, sources: Sources, broker: str, topic_name: str, schema_name: str
) -> None:
    messages, config = CDC[stream]
    write(broker, topic_name, [Message(value, key=str(i)) for i, value in enumerate(messages)])
    sources.run(CDC_COLUMNS, f"row_kind, {SHOWN}", topic=topic_name, **config)
    assert [tuple(row) for row in sources.table.collect()] == CHANGELOG
    sources.run(CDC_COLUMNS, SHOWN, topic=topic_name, unique_key="id", **config)
    assert sources.rows() == CURRENT
    table = Table(sources.spark, broker, f"{topic_name}.published", schema_name)
    assert counts(table.publish(sources.table)) == (2, 0, 0, 0)
    assert table.view() == CURRENT


def test_update_of_the_key_removes_the_old_row(sources: Sources, broker: str, topic_name: str) -> None:
    update = {"data": [product("2", "x", "1")], "old": [{"id": "1"}], "type": "UPDATE"}
    write(broker, topic_name, [Message({"data": [product("1", "x", "1")], "type": "INSERT"}), Message(update)])
    sources.run(CDC_COLUMNS, "id", topic=topic_name, unique_key="id", format="canal-json")
    assert sources.rows() == [(2,)]


def test_update_without_before_image_needs_unique_key(sources: Sources, broker: str, topic_name: str) -> None:
    write(
        broker,
        topic_name,
        [Message(debezium("c", None, product(1, "a", "1"))), Message(debezium("u", None, product(1, "b", "1")))],
    )
    sources.run(CDC_COLUMNS, topic=topic_name, format="debezium-json")
    with pytest.raises(Exception, match=r"offset 1: the value is not debezium-json .*REPLICA IDENTITY FULL"):
        sources.table.collect()
    sources.run(CDC_COLUMNS, "id, name", topic=topic_name, format="debezium-json", unique_key="id")
    assert sources.rows() == [(1, "b")]


@pytest.mark.parametrize(
    ("columns", "config", "message"),
    [
        ({}, {}, "events: a kafka_source needs columns with data_type"),
        ({"kafka_offset": "bigint"}, {}, "events: a kafka_source needs columns with data_type"),
        ({"n": ""}, {}, "events: column 'n' has no data_type"),
        (
            {"n": "int", "t": "TIMESTAMP(3)"},
            {},
            r"column 't' has data_type 'TIMESTAMP\(3\)', which is not a type of Spark SQL; use timestamp_ntz",
        ),
        ({"n": "int"}, {"unique_key": "m"}, "unique_key: the SELECT has no column m"),
        ({"a": "string", "b": "string"}, {"format": "raw"}, "the value has the columns a, b, but raw supports a single column"),
        ({"n": "int"}, {"format": "raw"}, "column 'n' of type int can't be read in the value as raw"),
    ],
)
def test_invalid_columns_are_refused(columns: dict[str, str], config: dict[str, Any], message: str, sources: Sources) -> None:
    with pytest.raises(OptionsError, match=message):
        sources.run(columns, topic="kafka_source.any", **config)


def test_missing_field_fails_with_fail_on_missing_field(sources: Sources, broker: str, topic_name: str) -> None:
    write(broker, topic_name, [Message({"n": 1, "m": None}), Message({"n": 2})])
    sources.run({"n": "int", "m": "int"}, "n", topic=topic_name, json_fail_on_missing_field=True)
    with pytest.raises(Exception, match="offset 1: the value is not json"):
        sources.rows()


@pytest.mark.nightly
def test_source_without_columns_uses_the_registered_schema(
    spark: SparkSession, broker: str, registry: str, topic_name: str, schema_name: str
) -> None:
    table = Table(spark, broker, topic_name, schema_name)
    config: dict[str, Any] = {"format": "avro-confluent", "value_fields_include": "EXCEPT_KEY", "avro_confluent_url": registry}
    table.publish([(1, "a"), (2, "b"), (1, "c")][1:], **config)
    sources = Sources(spark, broker, topic_name)
    sources.run({}, "id, name", topic=topic_name, unique_key="id", **config)
    assert sources.rows() == table.view() == [(1, "c"), (2, "b")]
    with pytest.raises(SchemaRegistryError, match="no subject 'nowhere' to read the value"):
        sources.run({"name": "string"}, topic=topic_name, format="avro-confluent", avro_confluent_url=registry,
                    value_avro_confluent_subject="nowhere")  # fmt: skip
