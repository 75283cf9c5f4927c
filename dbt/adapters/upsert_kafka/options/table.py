"""The table of options: every name, dialect, type, default, rule and meaning, once.

The readers of dialects (`dialects`), the checker (`check`) and docs/options.md are derived from it; nothing else in the package
knows how an option is spelled or what it may be. The options of formats are in `format_table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dbt.adapters.upsert_kafka.options import values as t
from dbt.adapters.upsert_kafka.options.values import ValueType, plain

UPSERT_KAFKA, KAFKA, KAFKA_SOURCE = MATERIALIZATIONS = ("upsert_kafka", "kafka", "kafka_source")
SINKS = (UPSERT_KAFKA, KAFKA)

PLAIN_FORMATS = ("csv", "json", "avro", "avro-confluent")
CDC_FORMATS = ("debezium-json", "canal-json")
ROW_FORMATS = (*PLAIN_FORMATS, "raw")
FORMATS = ROW_FORMATS + CDC_FORMATS

EVERY_VALUE = ("*",)
NO_SECRET = "can't be set here: dbt writes a model's config into target/; put it into"

NOT_AVAILABLE_YET: dict[str, tuple[Any, ...]] = {
    # option: the values that another issue still builds. Delete the line (or the value) when its behaviour has landed.
}


def is_later(name: str, value: Any) -> bool:
    """Whether what would act on this value of the option is still to be built."""
    later = NOT_AVAILABLE_YET.get(name, ())
    return later == EVERY_VALUE or value in later


@dataclass(frozen=True)
class Need:
    """A condition on another option: that it is set, or set to one of `values`; on one materialization or on all."""

    option: str
    values: tuple[Any, ...] = ()
    on: tuple[str, ...] = MATERIALIZATIONS

    def __str__(self) -> str:
        return f"{self.option}={' or '.join(map(plain, self.values))}" if self.values else self.option

    def met(self, values: Mapping[str, Any]) -> bool:
        value = values.get(self.option)
        return value in self.values if self.values else value not in (None, (), "", {})


@dataclass(frozen=True, eq=False)
class Option:
    """One row of the table."""

    name: str
    type: ValueType
    meaning: str
    flink: tuple[str, ...] = ()
    huawei: tuple[str, ...] = ()
    on: tuple[str, ...] = MATERIALIZATIONS
    default: Any = None
    default_text: str = "–"
    values_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The values that a materialization takes, where these are fewer than the type's."""
    default_on: Mapping[str, Any] = field(default_factory=dict)
    required_on: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    excludes: tuple[Need, ...] = ()
    value_needs: Mapping[Any, tuple[Need, ...]] = field(default_factory=dict)
    secret: bool = False
    no_effect: str = ""
    """Why the option is checked and then has nothing to do here."""


def underscored(name: str) -> str:
    """The one rule for names: a dot or a hyphen is an underscore."""
    return name.replace(".", "_").replace("-", "_")


_KEYED = (Need("unique_key"),)
# An append of events has no rows that could vanish or collide; change events have.
_CHANGES = (Need("update_mode", ("upsert", "retract"), on=(KAFKA,)),)
_CDC_NEEDS = {f: (Need("unique_key", on=(KAFKA,)),) for f in CDC_FORMATS}
_STARTUP_MODES = ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
_BOUNDED_MODES = ("latest-offset", "group-offsets", "timestamp", "specific-offsets")

OPTIONS: tuple[Option, ...] = (
    Option(
        "topic",
        t.TOPIC,
        "The topic that is written, or for a source read; a source takes a list `a;b`.",
        flink=("topic",),
        huawei=("connector.topic",),
        default_text="`<schema>.<alias>` (macro `generate_topic_name`); a source must name it",
    ),
    Option(
        "topic_pattern",
        t.PATTERN,
        "A regular expression that whole topic names must match; all of these topics are read.",
        flink=("topic-pattern",),
        on=(KAFKA_SOURCE,),
        excludes=(Need("topic"),),
    ),
    Option(
        "bootstrap_servers",
        t.SERVERS,
        "The brokers to start from, when this model's are not those of the profile.",
        flink=("properties.bootstrap.servers",),
        huawei=("connector.properties.bootstrap.servers",),
        default_text="the profile's",
    ),
    Option(
        "properties",
        t.PLAIN_MAP,
        "Properties for the Kafka clients by their Java names; each reaches the clients that know it.",
        flink=("properties.*",),
        huawei=("connector.properties.*",),
        default_text="{}",
        secret=True,
    ),
    Option(
        "unique_key",
        t.COLUMNS,
        "The columns that make the message key, in this order: what others declare as PRIMARY KEY.",
        flink=("key.fields",),
        required_on=(UPSERT_KAFKA,),
        default_text="required by `upsert_kafka`",
    ),
    Option(
        "format",
        t.choice(*FORMATS),
        "Sets key_format and value_format where these are not set themselves (a CDC format only value_format).",
        flink=("format",),
        huawei=("format.type",),
        values_on={UPSERT_KAFKA: PLAIN_FORMATS},
        value_needs=_CDC_NEEDS,
    ),
    Option(
        "key_format",
        t.choice(*ROW_FORMATS),
        "How the key columns become the bytes of the message key.",
        flink=("key.format",),
        default="json",
        values_on={UPSERT_KAFKA: PLAIN_FORMATS},
        needs=_KEYED,
    ),
    Option(
        "value_format",
        t.choice(*FORMATS),
        "How the columns become the bytes of the message value.",
        flink=("value.format",),
        default="json",
        values_on={UPSERT_KAFKA: PLAIN_FORMATS},
        value_needs=_CDC_NEEDS,
    ),
    Option(
        "value_fields_include",
        t.choice("ALL", "EXCEPT_KEY"),
        "Whether the message value repeats the key columns.",
        flink=("value.fields-include",),
        default="ALL",
        value_needs={"EXCEPT_KEY": (*_KEYED, Need("value_format", ROW_FORMATS))},
    ),
    Option(
        "key_fields_prefix",
        t.TEXT,
        "A prefix of the key columns' names that is taken off in the message key.",
        flink=("key.fields-prefix",),
        needs=(Need("value_fields_include", ("EXCEPT_KEY",)), *_KEYED),
    ),
    Option(
        "update_mode",
        t.choice("upsert", "retract", "append"),
        "`upsert`: changed rows as values, vanished keys as tombstones. `retract`: an update is a null, then the new value. "
        "`append`: only keys that the topic lacks; a changed row is an error.",
        huawei=("update-mode",),
        on=SINKS,
        default="upsert",
        default_on={KAFKA: "append"},
        value_needs={mode: (Need("unique_key", on=(KAFKA,)),) for mode in ("upsert", "retract")},
    ),
    Option(
        "sink_ignore_retraction",
        t.BOOLEAN,
        "Never write a null.",
        huawei=("connector.sink.ignore-retraction",),
        on=(UPSERT_KAFKA,),
        default=False,
    ),
    Option(
        "sink_partitioner",
        t.choice("default", "fixed", "round-robin", "custom", dotted=True),
        "Where a new key goes (`default`: Kafka's murmur2 of the key); a key that the topic holds stays where it is. "
        "A dotted name is `custom` with that sink_partitioner_class.",
        flink=("sink.partitioner",),
        huawei=("connector.sink-partitioner",),
        on=SINKS,
        default="default",
        value_needs={"custom": (Need("sink_partitioner_class"),)},
    ),
    Option(
        "sink_partitioner_class",
        t.FUNCTION,
        "The Python function `f(key, value, partitions) -> int` that places new keys.",
        huawei=("connector.sink-partitioner-class",),
        on=SINKS,
        needs=(Need("sink_partitioner", ("custom",)),),
    ),
    Option(
        "sink_delivery_guarantee",
        t.choice("none", "at-least-once", "exactly-once"),
        "`none`: the broker's answer is not awaited. `at-least-once`: all replicas have answered. "
        "`exactly-once`: the run is one transaction.",
        flink=("sink.delivery-guarantee", "sink.semantic"),
        on=SINKS,
        default="at-least-once",
    ),
    Option(
        "sink_transactional_id_prefix",
        t.TEXT,
        "How the transactional ids of exactly-once runs begin.",
        flink=("sink.transactional-id-prefix",),
        on=SINKS,
        default="dbt-upsert-kafka",
    ),
    Option(
        "sink_parallelism",
        t.whole_number(1),
        "How many Spark tasks write.",
        flink=("sink.parallelism",),
        on=SINKS,
        default_text="Spark's",
    ),
    Option(
        "sink_buffer_flush_max_rows",
        t.whole_number(0),
        "Flink's buffer that keeps the last change of a key before it writes.",
        flink=("sink.buffer-flush.max-rows",),
        on=SINKS,
        no_effect="a run writes each key once",
    ),
    Option(
        "sink_buffer_flush_interval",
        t.DURATION,
        "How long Flink's buffer waits before it writes.",
        flink=("sink.buffer-flush.interval",),
        on=SINKS,
        no_effect="a run writes each key once",
    ),
    Option(
        "headers",
        t.SQL_MAP,
        "Headers of every message: name and SQL expression over the SELECT's columns.",
        on=SINKS,
        default_text="{}",
    ),
    Option(
        "record_timestamp",
        t.SQL,
        "The time of each message, a column or expression of type timestamp; null is the time of the write. Spark's sink can't "
        "set it.",
        on=SINKS,
        default_text="the time of the write",
        needs=(Need("sink_delivery_guarantee", ("exactly-once",)),),
    ),
    Option(
        "scan_startup_mode",
        t.choice(*_STARTUP_MODES),
        "Where reading starts.",
        flink=("scan.startup.mode",),
        on=(KAFKA_SOURCE,),
        default_text="group-offsets with properties group.id, else earliest-offset",
        value_needs={
            "timestamp": (Need("scan_startup_timestamp_millis"),),
            "specific-offsets": (Need("scan_startup_specific_offsets"),),
            "group-offsets": (Need("properties group.id"),),
        },
    ),
    Option(
        "scan_startup_timestamp_millis",
        t.whole_number(0),
        "The time from which messages are read, in milliseconds since 1970.",
        flink=("scan.startup.timestamp-millis",),
        on=(KAFKA_SOURCE,),
        needs=(Need("scan_startup_mode", ("timestamp",)),),
    ),
    Option(
        "scan_startup_specific_offsets",
        t.OFFSETS,
        "The first offset to read, by partition; only with a single topic.",
        flink=("scan.startup.specific-offsets",),
        on=(KAFKA_SOURCE,),
        needs=(Need("scan_startup_mode", ("specific-offsets",)),),
    ),
    Option(
        "scan_bounded_mode",
        t.choice(*_BOUNDED_MODES, because=": a dbt run is always bounded"),
        "Where reading ends; a dbt run is always bounded.",
        flink=("scan.bounded.mode",),
        on=(KAFKA_SOURCE,),
        default="latest-offset",
        value_needs={
            "timestamp": (Need("scan_bounded_timestamp_millis"),),
            "specific-offsets": (Need("scan_bounded_specific_offsets"),),
            "group-offsets": (Need("properties group.id"),),
        },
    ),
    Option(
        "scan_bounded_timestamp_millis",
        t.whole_number(0),
        "The time before which messages are read, in milliseconds since 1970.",
        flink=("scan.bounded.timestamp-millis",),
        on=(KAFKA_SOURCE,),
        needs=(Need("scan_bounded_mode", ("timestamp",)),),
    ),
    Option(
        "scan_bounded_specific_offsets",
        t.OFFSETS,
        "The offset before which reading ends, by partition; only with a single topic.",
        flink=("scan.bounded.specific-offsets",),
        on=(KAFKA_SOURCE,),
        needs=(Need("scan_bounded_mode", ("specific-offsets",)),),
    ),
    Option(
        "scan_topic_partition_discovery_interval",
        t.DURATION,
        "How often Flink looks for new topics and partitions.",
        flink=("scan.topic-partition-discovery.interval",),
        on=(KAFKA_SOURCE,),
        no_effect="every run looks for new topics and partitions",
    ),
    Option(
        "on_offset_out_of_range",
        t.choice("error", "earliest"),
        "What happens when the group's or the specific offsets are expired, or not there yet: refuse the run, or start at the "
        "earliest that is there.",
        on=(KAFKA_SOURCE,),
        default="error",
    ),
    Option(
        "ignore_parse_errors",
        t.BOOLEAN,
        "Messages that the format can't read are left out of the relation, instead of failing the query.",
        default=False,
    ),
    Option(
        "delete_when",
        t.SQL,
        "A condition over the SELECT's columns; the keys of rows that meet it are deleted.",
        on=SINKS,
        needs=_CHANGES,
    ),
    Option(
        "missing_keys",
        t.choice("delete", "keep"),
        "What happens to keys of the topic that the SELECT lacks.",
        on=SINKS,
        default="delete",
        needs=_CHANGES,
    ),
    Option(
        "max_deletes",
        t.LIMIT,
        "Refuse a run that would delete more: a count, or a percentage of the topic's keys.",
        on=SINKS,
        needs=_CHANGES,
    ),
    Option(
        "allow_empty",
        t.BOOLEAN,
        "Let a SELECT without rows delete every key of the topic.",
        on=SINKS,
        default=False,
        needs=_CHANGES,
    ),
    Option(
        "on_duplicate_key",
        t.choice("error", "latest"),
        "What happens when rows share a key: refuse the run, or take the row with the greatest sequence_by.",
        on=SINKS,
        default="error",
        needs=_CHANGES,
        value_needs={"latest": (Need("sequence_by"),)},
    ),
    Option(
        "sequence_by",
        t.COLUMNS,
        "The columns that order the rows of one key.",
        on=SINKS,
        needs=(Need("on_duplicate_key", ("latest",)), *_CHANGES),
    ),
    Option(
        "on_null_key",
        t.choice("error", "drop"),
        "What happens to rows whose key has a null column: refuse the run, or leave them out.",
        on=SINKS,
        default="error",
        needs=_KEYED,
    ),
    Option(
        "foreign_keys",
        t.choice("keep", "delete"),
        "What happens to keys of the topic that the model's key format can't have written, so another writer's.",
        on=SINKS,
        default="keep",
        needs=_CHANGES,
    ),
    Option(
        "exclude_columns",
        t.COLUMNS,
        "Columns that options may use (sequence_by, delete_when, headers, record_timestamp) and that are not published.",
        on=SINKS,
    ),
    Option(
        "partitions",
        t.whole_number(1),
        "Partitions of a topic that the run creates.",
        on=SINKS,
        default_text="the profile's, else the broker's",
    ),
    Option(
        "replication_factor",
        t.whole_number(1, 32767),
        "Replicas of a topic that the run creates.",
        on=SINKS,
        default_text="the profile's, else the broker's",
    ),
    Option("topic_config", t.PLAIN_MAP, "Settings of the topic by their Kafka names.", on=SINKS, default_text="the profile's"),
)
