"""The table of options: the name, spellings, type, default, rules and meaning of each option.

`dialects`, `check` and docs/options.md are derived from this table. No other module knows how an option is spelled or which
values it takes. The options of formats are in `format_table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dbt.adapters.upsert_kafka.options import values as t
from dbt.adapters.upsert_kafka.options.values import ValueType, plain

UPSERT_KAFKA, KAFKA, KAFKA_SOURCE = MATERIALIZATIONS = ("upsert_kafka", "kafka", "kafka_source")
SINKS = (UPSERT_KAFKA, KAFKA)

PLAIN_FORMATS = ("csv", "json", "avro", "avro-confluent", "json-schema-confluent")
CDC_FORMATS = ("debezium-json", "canal-json")
ROW_FORMATS = (*PLAIN_FORMATS, "raw")
FORMATS = ROW_FORMATS + CDC_FORMATS

BATCH, AVAILABLE_NOW, CONTINUOUS = TRIGGERS = ("batch", "available-now", "continuous")
STREAMS = (AVAILABLE_NOW, CONTINUOUS)
NOT_IN_STREAMS = {
    "missing_keys": "a stream reads new events only and can't tell which keys are missing; delete keys with delete_when",
    "max_deletes": "a stream does not count the keys of the topic",
    "allow_empty": "a stream without new events deletes nothing",
    "foreign_keys": "a stream does not read the keys of the topic",
    "sink_partitioner": "a stream does not know the partition of a key; only Kafka's default partitioner always chooses the same",
}
"""Options of `upsert_kafka` that can't be set together with a trigger of STREAMS, each with the reason. A `kafka` model that
appends has no keys to find again: it takes every partitioner, and the others need another update_mode."""

NO_SECRET = "can't be set in a model, because dbt writes a model's config to target/; set it in"


@dataclass(frozen=True)
class Need:
    """A condition on another option: it is set, or it has one of `values`. Applies to the materializations `on`."""

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
    """The values that a materialization allows, if it allows fewer than the type."""
    default_on: Mapping[str, Any] = field(default_factory=dict)
    required_on: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    excludes: tuple[Need, ...] = ()
    value_needs: Mapping[Any, tuple[Need, ...]] = field(default_factory=dict)
    secret: bool = False
    no_effect: str = ""
    """Why the option has no effect; empty if it has one. The value is checked in both cases."""


def underscored(name: str) -> str:
    """The name in `config()`: dots and hyphens become underscores."""
    return name.replace(".", "_").replace("-", "_")


_KEYED = (Need("unique_key"),)
# Events that are only appended are never updated or deleted, so these options apply to change events only.
_CHANGES = (Need("update_mode", ("upsert", "retract"), on=(KAFKA,)),)
# A stream does not know the old value of a key, which change events need.
_STREAM_NEEDS = (Need("update_mode", ("upsert",), on=(UPSERT_KAFKA,)), Need("update_mode", ("append",), on=(KAFKA,)))
_CDC_NEEDS = {f: (Need("unique_key", on=(KAFKA,)),) for f in CDC_FORMATS}
_STARTUP_MODES = ("earliest-offset", "latest-offset", "group-offsets", "timestamp", "specific-offsets")
_BOUNDED_MODES = ("latest-offset", "group-offsets", "timestamp", "specific-offsets")

OPTIONS: tuple[Option, ...] = (
    Option(
        "topic",
        t.TOPIC,
        "The topic to write to, or for a source to read from. A source takes a list: `a;b`.",
        flink=("topic",),
        huawei=("connector.topic",),
        default_text="`<schema>.<alias>` (macro `generate_topic_name`); a source has no default",
    ),
    Option(
        "topic_pattern",
        t.PATTERN,
        "A regular expression. All topics whose whole name matches are read.",
        flink=("topic-pattern",),
        on=(KAFKA_SOURCE,),
        excludes=(Need("topic"),),
    ),
    Option(
        "bootstrap_servers",
        t.SERVERS,
        "The bootstrap servers of this model, if they differ from those of the profile.",
        flink=("properties.bootstrap.servers",),
        huawei=("connector.properties.bootstrap.servers",),
        default_text="the profile's",
    ),
    Option(
        "properties",
        t.PLAIN_MAP,
        "Kafka client properties by their Java names. Each is passed to the clients that have it.",
        flink=("properties.*",),
        huawei=("connector.properties.*",),
        default_text="{}",
        secret=True,
    ),
    Option(
        "unique_key",
        t.COLUMNS,
        "The columns of the message key, in this order. Flink declares them as PRIMARY KEY.",
        flink=("key.fields",),
        required_on=(UPSERT_KAFKA,),
        default_text="required by `upsert_kafka`",
    ),
    Option(
        "format",
        t.choice(*FORMATS),
        "The default of key_format and value_format. A CDC format applies to value_format only.",
        flink=("format",),
        huawei=("format.type",),
        values_on={UPSERT_KAFKA: PLAIN_FORMATS},
        value_needs=_CDC_NEEDS,
    ),
    Option(
        "key_format",
        t.choice(*ROW_FORMATS),
        "The format of the message key.",
        flink=("key.format",),
        default="json",
        values_on={UPSERT_KAFKA: PLAIN_FORMATS},
        needs=_KEYED,
    ),
    Option(
        "value_format",
        t.choice(*FORMATS),
        "The format of the message value.",
        flink=("value.format",),
        default="json",
        values_on={UPSERT_KAFKA: PLAIN_FORMATS},
        value_needs=_CDC_NEEDS,
    ),
    Option(
        "value_fields_include",
        t.choice("ALL", "EXCEPT_KEY"),
        "Whether the message value contains the key columns.",
        flink=("value.fields-include",),
        default="ALL",
        value_needs={"EXCEPT_KEY": (*_KEYED, Need("value_format", ROW_FORMATS))},
    ),
    Option(
        "key_fields_prefix",
        t.TEXT,
        "A prefix of the key columns' names that is removed in the message key.",
        flink=("key.fields-prefix",),
        needs=(Need("value_fields_include", ("EXCEPT_KEY",)), *_KEYED),
    ),
    Option(
        "update_mode",
        t.choice("upsert", "retract", "append"),
        "`upsert`: changed rows are written as values, deleted keys as tombstones. `retract`: an update is a tombstone and then "
        "the new value. `append`: only new keys are written; a changed row is an error.",
        huawei=("update-mode",),
        on=SINKS,
        default="upsert",
        default_on={KAFKA: "append"},
        value_needs={mode: (Need("unique_key", on=(KAFKA,)),) for mode in ("upsert", "retract")},
    ),
    Option(
        "sink_ignore_retraction",
        t.BOOLEAN,
        "Never write tombstones.",
        huawei=("connector.sink.ignore-retraction",),
        on=(UPSERT_KAFKA,),
        default=False,
    ),
    Option(
        "sink_partitioner",
        t.choice("default", "fixed", "round-robin", "custom", dotted=True),
        "How the partition of a new key is chosen (`default`: Kafka's murmur2 hash of the key). A key of the topic stays in its "
        "partition. A dotted name means `custom` with that sink_partitioner_class.",
        flink=("sink.partitioner",),
        huawei=("connector.sink-partitioner",),
        on=SINKS,
        default="default",
        value_needs={"custom": (Need("sink_partitioner_class"),)},
    ),
    Option(
        "sink_partitioner_class",
        t.FUNCTION,
        "The Python function `f(key, value, partitions) -> int` that chooses the partition of a new key.",
        huawei=("connector.sink-partitioner-class",),
        on=SINKS,
        needs=(Need("sink_partitioner", ("custom",)),),
    ),
    Option(
        "sink_delivery_guarantee",
        t.choice("none", "at-least-once", "exactly-once"),
        "`none`: do not wait for acknowledgements (acks=0). `at-least-once`: wait for all in-sync replicas. "
        "`exactly-once`: each run is one Kafka transaction.",
        flink=("sink.delivery-guarantee", "sink.semantic"),
        on=SINKS,
        default="at-least-once",
    ),
    Option(
        "sink_transactional_id_prefix",
        t.TEXT,
        "The prefix of the transactional ids of exactly-once runs.",
        flink=("sink.transactional-id-prefix",),
        on=SINKS,
        default="dbt-upsert-kafka",
    ),
    Option(
        "sink_parallelism",
        t.whole_number(1),
        "The number of Spark tasks that write.",
        flink=("sink.parallelism",),
        on=SINKS,
        default_text="Spark's",
    ),
    Option(
        "sink_buffer_flush_max_rows",
        t.whole_number(0),
        "The size of the buffer in which Flink keeps the last change of each key.",
        flink=("sink.buffer-flush.max-rows",),
        on=SINKS,
        no_effect="a run writes each key at most once",
    ),
    Option(
        "sink_buffer_flush_interval",
        t.DURATION,
        "The interval in which Flink flushes this buffer.",
        flink=("sink.buffer-flush.interval",),
        on=SINKS,
        no_effect="a run writes each key at most once",
    ),
    Option(
        "headers",
        t.SQL_MAP,
        "Message headers: a map of names to SQL expressions over the columns of the SELECT.",
        on=SINKS,
        default_text="{}",
    ),
    Option(
        "record_timestamp",
        t.SQL,
        "The timestamp of each message: a column or SQL expression of type timestamp. NULL means the time of the write. Not "
        "supported by Spark's Kafka sink.",
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
        default_text="group-offsets if the property group.id is set, otherwise earliest-offset",
        value_needs={
            "timestamp": (Need("scan_startup_timestamp_millis"),),
            "specific-offsets": (Need("scan_startup_specific_offsets"),),
            "group-offsets": (Need("properties group.id"),),
        },
    ),
    Option(
        "scan_startup_timestamp_millis",
        t.whole_number(0),
        "The first timestamp to read, in milliseconds since 1970-01-01 UTC.",
        flink=("scan.startup.timestamp-millis",),
        on=(KAFKA_SOURCE,),
        needs=(Need("scan_startup_mode", ("timestamp",)),),
    ),
    Option(
        "scan_startup_specific_offsets",
        t.OFFSETS,
        "The first offset to read of each partition. Needs a single topic.",
        flink=("scan.startup.specific-offsets",),
        on=(KAFKA_SOURCE,),
        needs=(Need("scan_startup_mode", ("specific-offsets",)),),
    ),
    Option(
        "scan_bounded_mode",
        t.choice(*_BOUNDED_MODES, because="; a dbt run is always bounded"),
        "Where reading ends. A dbt run is always bounded.",
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
        "The timestamp at which reading ends (exclusive), in milliseconds since 1970-01-01 UTC.",
        flink=("scan.bounded.timestamp-millis",),
        on=(KAFKA_SOURCE,),
        needs=(Need("scan_bounded_mode", ("timestamp",)),),
    ),
    Option(
        "scan_bounded_specific_offsets",
        t.OFFSETS,
        "The offset at which reading ends (exclusive) of each partition. Needs a single topic.",
        flink=("scan.bounded.specific-offsets",),
        on=(KAFKA_SOURCE,),
        needs=(Need("scan_bounded_mode", ("specific-offsets",)),),
    ),
    Option(
        "scan_topic_partition_discovery_interval",
        t.DURATION,
        "The interval in which Flink discovers new topics and partitions.",
        flink=("scan.topic-partition-discovery.interval",),
        on=(KAFKA_SOURCE,),
        no_effect="every run discovers new topics and partitions",
    ),
    Option(
        "on_offset_out_of_range",
        t.choice("error", "earliest"),
        "What to do if a committed or specific offset is out of range: fail, or start at the earliest offset of the partition.",
        on=(KAFKA_SOURCE,),
        default="error",
    ),
    Option(
        "commit_without",
        t.MODELS,
        "Models that select from this source and do not hold back the commit of its group.",
        on=(KAFKA_SOURCE,),
        needs=(Need("scan_startup_mode", ("group-offsets",)),),
    ),
    Option(
        "ignore_parse_errors",
        t.BOOLEAN,
        "Skip messages that can't be decoded, instead of failing the query.",
        default=False,
    ),
    Option(
        "delete_when",
        t.SQL,
        "A SQL condition over the columns of the SELECT. The keys of rows for which it is true are deleted.",
        on=SINKS,
        needs=_CHANGES,
    ),
    Option(
        "missing_keys",
        t.choice("delete", "keep"),
        "What to do with keys of the topic that are not in the SELECT.",
        on=SINKS,
        default="delete",
        needs=_CHANGES,
    ),
    Option(
        "max_deletes",
        t.LIMIT,
        "Fail if a run would delete more keys: a count, or a percentage of the topic's keys.",
        on=SINKS,
        needs=_CHANGES,
    ),
    Option(
        "allow_empty",
        t.BOOLEAN,
        "Allow a SELECT without rows to delete every key of the topic.",
        on=SINKS,
        default=False,
        needs=_CHANGES,
    ),
    Option(
        "on_duplicate_key",
        t.choice("error", "latest"),
        "What to do with several rows of the same key: fail, or publish the row with the greatest sequence_by.",
        on=SINKS,
        default="error",
        needs=_CHANGES,
        value_needs={"latest": (Need("sequence_by"),)},
    ),
    Option(
        "sequence_by",
        t.COLUMNS,
        "The columns that order the rows of the same key.",
        on=SINKS,
        needs=(Need("on_duplicate_key", ("latest",)), *_CHANGES),
    ),
    Option(
        "on_null_key",
        t.choice("error", "drop"),
        "What to do with rows that have NULL in a key column: fail, or drop them.",
        on=SINKS,
        default="error",
        needs=_KEYED,
    ),
    Option(
        "foreign_keys",
        t.choice("keep", "delete"),
        "What to do with keys of the topic that the model's key format can't have written, so that another writer did.",
        on=SINKS,
        default="keep",
        needs=_CHANGES,
    ),
    Option(
        "trigger",
        t.choice(*TRIGGERS),
        "When the model is computed. `batch`: each run computes the whole SELECT. `available-now`: a run reads the events that "
        "are new since the last run, through `stream()`, and ends. `continuous`: `upsert-kafka stream` publishes new events "
        "until it is stopped; `dbt run` is as with `available-now`.",
        on=SINKS,
        default_text="batch",
        value_needs=dict.fromkeys(STREAMS, _STREAM_NEEDS),
    ),
    Option(
        "trigger_interval",
        t.DURATION,
        "How often a continuous stream publishes new events. 0 begins the next batch as soon as one has ended.",
        on=SINKS,
        default_text="1 second",
        needs=(Need("trigger", (CONTINUOUS,)),),
    ),
    Option(
        "checkpoint_location",
        t.TEXT,
        "The folder of Spark's checkpoints of a stream. On a cluster it must be shared storage.",
        on=SINKS,
        default_text="the profile's, otherwise `.upsert_kafka/checkpoints` in the project",
        needs=(Need("trigger", STREAMS),),
    ),
    Option(
        "watermark",
        t.DURATION_MAP,
        "For streams: a timestamp column, and how late its events may come. Spark drops the state of windows that are older.",
        on=(KAFKA_SOURCE,),
        default_text="{}",
    ),
    Option(
        "exclude_columns",
        t.COLUMNS,
        "Columns that are not published. Options (sequence_by, delete_when, headers, record_timestamp) may use them.",
        on=SINKS,
    ),
    Option(
        "plan_mask",
        t.COLUMNS,
        "Columns whose values are never shown: not in plans, not in the dry run, not as examples in messages of guards.",
        on=SINKS,
    ),
    Option(
        "partitions",
        t.whole_number(1),
        "The number of partitions, if the run creates the topic.",
        on=SINKS,
        default_text="the profile's, otherwise the broker's",
    ),
    Option(
        "replication_factor",
        t.whole_number(1, 32767),
        "The replication factor, if the run creates the topic.",
        on=SINKS,
        default_text="the profile's, otherwise the broker's",
    ),
    Option("topic_config", t.PLAIN_MAP, "Topic configs by their Kafka names.", on=SINKS, default_text="the profile's"),
)
