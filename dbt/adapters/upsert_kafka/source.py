"""Topics as a relation: the model's YAML columns are the schema, the run's slice is pinned, its SQL reads `kafka_topic()`.

Leaves to `slices` which offsets a run covers, to `formats` what the bytes mean and to `views` how the catalog keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.events.logging import AdapterLogger
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka import records, slices, views
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.formats import Format, Side
from dbt.adapters.upsert_kafka.formats.changelog import LIVE, ROW, ROW_KIND, ChangelogFormat
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.options import ModelOptions, check_columns
from dbt.adapters.upsert_kafka.records import KEY, VALUE, Records
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.sql import quote_identifier, quote_literal

logger = AdapterLogger("upsert_kafka")

METADATA = {
    "kafka_topic": "topic",
    "kafka_partition": "partition",
    "kafka_offset": "offset",
    "kafka_timestamp": "timestamp",
    "kafka_key": "key",
    "kafka_headers": "headers",
}
LATER = "the columns of a source are those of its messages, and what the SELECT derives belongs into a model on top of it"


@dataclass(frozen=True)
class Request:
    """One run of one source."""

    model: str
    options: ModelOptions
    kafka: KafkaSettings
    relation: UpsertKafkaRelation
    existing: UpsertKafkaRelation | None = None


@dataclass
class Reading(AdapterResponse):
    """What dbt prints at the end of a source's line and keeps in run_results.json."""

    slice: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """[start, end) by topic and partition."""
    offsets: int = 0
    group: str | None = None
    skipped: int | None = None
    """Messages that can't be read, with ignore_parse_errors."""


def expose(spark: SparkSession, sql: str, layout: Records, request: Request) -> Reading:
    """Pin the slice that this run covers and make the relation: the model's SELECT over it."""
    options, kafka = request.options, _without_reset(request.kafka)
    with kafka.admin() as admin:
        covered = slices.resolve(admin, request.model, options)
    reader = {**kafka.catalog(), **covered.reader(), "includeHeaders": "true"}
    views.create(spark, request.relation, request.existing, reader, sql)
    skipped = None
    if options.ignore_parse_errors:
        raw = spark.table(views.name(request.relation.topic_table))
        skipped = raw.where(f"NOT ({_readable(options, layout)})").count()
        if skipped:
            logger.warning(f"{request.model}: {skipped} messages can't be read as {options.value_format} and are left out")
    partitions = sum(len(bounds) for bounds in covered.bounds.values())
    return Reading(
        _message=f"{covered.offsets} offsets of {_count(partitions, 'partition')}" + (f", {skipped} skipped" if skipped else ""),
        slice=covered.as_dict(),
        offsets=covered.offsets,
        group=options.properties.get("group.id") if options.scan_startup_mode == "group-offsets" else None,
        skipped=skipped,
    )


def layout(spark: SparkSession, model: str, options: ModelOptions, columns: Mapping[str, Mapping[str, Any]]) -> Records:
    """How messages become the columns that the model's YAML declares."""
    schema = schema_of(spark, model, columns)
    check_columns(options, model, schema.names)
    found = records.layout(options, options.topic or options.topic_pattern or "", schema)
    problems = found.problems() if options.unique_key and not _is_changelog(found) else found.value_format.problems(found.value)
    if problems:
        raise OptionsError("\n".join(f"{model}: {problem.replace('be written', 'be read')}" for problem in problems))
    return found


def schema_of(spark: SparkSession, model: str, columns: Mapping[str, Mapping[str, Any]]) -> StructType:
    """The columns with their types; documented metadata columns are none of the message's."""
    declared = {
        str(c["name"]): c.get("data_type") for c in columns.values() if str(c["name"]).lower() not in {*METADATA, ROW_KIND}
    }
    if not declared:
        raise OptionsError(
            f"{model}: a kafka_source needs its columns with their data_type in the model's YAML: they are the schema of its messages"
        )
    problems = [f"{model}: column '{name}' has no data_type; {LATER}" for name, text in declared.items() if not text]
    fields = []
    for name, text in declared.items():
        if text:
            try:
                fields += spark.range(0).select(F.lit(None).cast(text).alias(name)).schema.fields
            except PySparkException:
                hint = (
                    "; Flink's TIMESTAMP(n) is timestamp_ntz, TIMESTAMP_LTZ(n) timestamp" if "timestamp" in text.lower() else ""
                )
                problems.append(f"{model}: column '{name}' has data_type '{text}', which is no type of Spark SQL{hint}")
    if problems:
        raise OptionsError("\n".join(problems))
    return StructType(fields)


def query(options: ModelOptions, layout: Records, table: str) -> str:
    """What `kafka_topic()` stands for: a subquery over `<alias>__topic` with the columns and the metadata."""
    readable = f"(SELECT * FROM {table} WHERE {_readable(options, layout)})" if options.ignore_parse_errors else table
    if isinstance(layout.value_format, ChangelogFormat):
        return _current(options, layout, readable) if options.unique_key else _changelog(layout, readable)
    source = views.LAST_PER_KEY.format(table=readable) if options.unique_key else readable
    parts = [f"{_checked(layout.value_format, layout.value, VALUE)} AS v"]
    if layout.reads_key:
        parts.append(f"{_checked(layout.key_format, layout.key, KEY)} AS k")
    picked = ", ".join([*layout.picked(), *_metadata()])
    return f"(SELECT {picked} FROM (SELECT *, {', '.join(parts)} FROM {source} WHERE {_filled(options)}))"


def _changelog(layout: Records, source: str) -> str:
    picked = [f"c.{ROW_KIND} AS {ROW_KIND}", *_columns(layout, f"c.{ROW}")]
    return f"(SELECT {', '.join([*picked, *_metadata()])} FROM {_exploded(layout, source, images=True)})"


def _current(options: ModelOptions, layout: Records, source: str) -> str:
    """The last change of each key, by offset inside a partition and by timestamp between them."""
    keys = ", ".join(f"c.{ROW}.{quote_identifier(field.name)} AS k{i}" for i, field in enumerate(layout.key.fields))
    names = ", ".join(f"k{i}" for i in range(len(layout.key.fields)))
    change = "struct(c, topic, partition, offset, timestamp, key, headers)"
    last = (
        f"SELECT {names}, max_by(r, struct(r.timestamp, r.topic, r.partition)) AS r FROM ("
        f"SELECT {names}, max_by(r, struct(r.offset, pos)) AS r FROM ("
        f"SELECT {keys}, pos, {change} AS r FROM {_exploded(layout, source, images=False)}"
        f") GROUP BY {names}, r.topic, r.partition) GROUP BY {names}"
    )
    picked = [*_columns(layout, f"r.c.{ROW}"), *_metadata("r.")]
    return f"(SELECT {', '.join(picked)} FROM ({last}) WHERE r.c.{ROW_KIND} IN {LIVE})"


def _exploded(layout: Records, source: str, images: bool) -> str:
    format = layout.value_format
    assert isinstance(format, ChangelogFormat)
    hint = f" ({format.missing_image})" if images else ""
    changes = f"coalesce({format.changes(layout.value, VALUE, images)}, {_refuse(format, layout.value, VALUE, hint)})"
    return f"(SELECT *, posexplode({changes}) AS (pos, c) FROM {source} WHERE octet_length(value) > 0)"


def _checked(format: Format, side: Side, payload: str) -> str:
    """The decoded payload, or an error that says which message can't be read."""
    return f"coalesce({format.decode(_skipping(side), payload)}, {_refuse(format, side, payload)})"


def _refuse(format: Format, side: Side, payload: str, hint: str = "") -> str:
    where = "'Topic ', topic, ', partition ', partition, ', offset ', offset"
    what = quote_literal(f": the {side.role} is not {format.name} with the columns of this model{hint}: ")
    return f"raise_error(concat({where}, {what}, left(CAST({payload} AS STRING), 200)))"


def _readable(options: ModelOptions, layout: Records) -> str:
    """Whether a message can be read; one without a value can."""
    if isinstance(layout.value_format, ChangelogFormat):
        decoded = layout.value_format.changes(layout.value, VALUE, images=not options.unique_key)
        return f"coalesce(octet_length(value), 0) = 0 OR {decoded} IS NOT NULL"
    tests = [f"(value IS NULL OR {layout.value_format.decode(_skipping(layout.value), VALUE)} IS NOT NULL)"]
    if layout.reads_key:
        tests.append(f"(key IS NULL OR {layout.key_format.decode(_skipping(layout.key), KEY)} IS NOT NULL)")
    return " AND ".join(tests)


def _filled(options: ModelOptions) -> str:
    comments = " AND NOT startswith(value, X'23')" if options.value_format_options.get("allow_comments") else ""
    return f"value IS NOT NULL{comments}"


def _skipping(side: Side) -> Side:
    return replace(side, options={**side.options, "on_decode_error": "skip"})


def _columns(layout: Records, row: str) -> list[str]:
    return [f"{row}.{quote_identifier(f.name)} AS {quote_identifier(f.column)}" for f in layout.value.fields]


def _metadata(prefix: str = "") -> list[str]:
    return [f"{prefix}{column} AS {name}" for name, column in METADATA.items()]


def _is_changelog(layout: Records) -> bool:
    return isinstance(layout.value_format, ChangelogFormat)


def _without_reset(kafka: KafkaSettings) -> KafkaSettings:
    """Offsets are pinned, so that there is nothing to reset; Spark refuses the property."""
    return replace(kafka, properties={name: value for name, value in kafka.properties.items() if name != "auto.offset.reset"})


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
