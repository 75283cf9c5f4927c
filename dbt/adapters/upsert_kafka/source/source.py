"""The `kafka_source` materialization: topics as a relation.

The columns in the model's YAML are the schema of the messages. The SQL of the model selects from `kafka_topic()`. Leaves the
offsets of a run to `slices`, decoding to `formats` and the catalog to `views`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dbt.adapters.contracts.connection import AdapterResponse
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructField, StructType

from dbt.adapters.upsert_kafka.catalog import reading, views
from dbt.adapters.upsert_kafka.catalog.reading import METADATA
from dbt.adapters.upsert_kafka.dbt_warnings import warn
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.formats import Role, avro_confluent, records
from dbt.adapters.upsert_kafka.formats.changelog import ROW_KIND
from dbt.adapters.upsert_kafka.formats.records import Records
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.options import ModelOptions, check_columns
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.source import group_offsets, slices
from dbt.adapters.upsert_kafka.source.group_offsets import GroupSlice
from dbt.adapters.upsert_kafka.state.record import Owner

AVRO_CONFLUENT = avro_confluent.AvroConfluent.name
_NO_DERIVED_COLUMNS = "set it; the columns of a source are the fields of its messages, derive other columns in a downstream model"


@dataclass(frozen=True)
class Request:
    """One run of one source."""

    model: str
    options: ModelOptions
    kafka: KafkaSettings
    relation: UpsertKafkaRelation
    existing: UpsertKafkaRelation | None = None
    owner: Owner | None = None
    """This source in its environment, which alone commits the offsets of its group; None for a run that commits nothing."""


@dataclass
class Reading(AdapterResponse):
    """The result of a source: dbt logs it and stores it in run_results.json."""

    slice: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """The offsets [start, end) by topic and partition."""
    offsets: int = 0
    group: str | None = None
    committed: dict[str, dict[str, int]] | None = None
    """The offsets that the group had committed before, by topic and partition. Only with a group."""
    skipped: int | None = None
    """The number of messages that can't be decoded. Only with ignore_parse_errors."""


def expose(spark: SparkSession, sql: str, layout: Records, request: Request) -> Reading:
    """Resolve the offsets of this run and create the relation: a view with the model's SELECT over them."""
    options, kafka = request.options, _without_reset(request.kafka)
    with kafka.admin() as admin:
        covered = slices.resolve(admin, request.model, options, lambda metadata: _group_problem(metadata, request))
    group = options.properties["group.id"] if options.scan_startup_mode == "group-offsets" else None
    facts = {group_offsets.PROPERTY: GroupSlice(group, covered).as_text()} if group else {}
    reader = {**kafka.catalog(), **covered.reader(), "includeHeaders": "true"}
    view = views.TopicView(request.relation, request.existing, reader, sql)
    views.create(spark, view, views.prepare(spark, request.model, request.relation), facts)
    skipped = None
    if options.ignore_parse_errors:
        raw = spark.table(views.name(request.relation.topic_table))
        skipped = raw.where(f"NOT ({reading.readable(layout, images=not options.unique_key)})").count()
        if skipped:
            messages = _count(skipped, "message")
            warn(f"{request.model}: {messages} can't be decoded as {options.value_format}, skipped (ignore_parse_errors)")
    partitions = sum(len(bounds) for bounds in covered.bounds.values())
    return Reading(
        _message=f"{_count(covered.offsets, 'offset')} of {_count(partitions, 'partition')}"
        + (f", {skipped} skipped" if skipped else ""),
        slice=covered.as_dict(),
        offsets=covered.offsets,
        group=group,
        committed=covered.committed_as_dict() if group else None,
        skipped=skipped,
    )


def preview(spark: SparkSession, sql: str, request: Request) -> tuple[Reading, bool]:
    """The offsets that a run would read, and whether the relation has others now, or another SELECT. Nothing is created."""
    kafka = _without_reset(request.kafka)
    with kafka.admin() as admin:
        covered = slices.resolve(admin, request.model, request.options, lambda metadata: _group_problem(metadata, request))
    group = request.options.properties["group.id"] if request.options.scan_startup_mode == "group-offsets" else None
    view = views.TopicView(
        request.relation, request.existing, {**kafka.catalog(), **covered.reader(), "includeHeaders": "true"}, sql
    )
    before = views.prepare(spark, request.model, request.relation, creates_schema=False)
    message = f"planned, {_count(covered.offsets, 'offset')}"
    reading = Reading(_message=message, slice=covered.as_dict(), offsets=covered.offsets, group=group)
    return reading, not views.is_created(view, before)


def _group_problem(metadata: str, request: Request) -> str | None:
    """Why this source may not continue at an offset with this metadata: another model or environment committed it."""
    committed_by = metadata.removeprefix(group_offsets.COMMITTED_BY)
    if request.owner is None or committed_by in (metadata, str(request.owner)):
        return None
    group = request.options.properties["group.id"]
    return (
        f"group '{group}' belongs to {committed_by}, which committed its offsets, and this is {request.owner}. Nothing was read. "
        "Set another group.id, for example with {{ target.name }} in it. To take the group over, remove the mark: "
        f"kafka-consumer-groups --group {group} --reset-offsets --to-current --all-topics --execute"
    )


def layout(
    spark: SparkSession,
    model: str,
    options: ModelOptions,
    columns: Mapping[str, Mapping[str, Any]],
    registry: Mapping[str, Any] | None = None,
) -> Records:
    """The layout of the messages. The columns are those of the model's YAML, or of the schema registry if the YAML has none."""
    registered = _registered(spark, options, registry or {}) if not _declared(columns) else None
    schema = registered or schema_of(spark, model, columns)
    check_columns(options, model, schema.names)
    found = records.layout(options, options.topic or options.topic_pattern or "", schema)
    problems = found.problems()
    if problems:
        raise OptionsError("\n".join(f"{model}: {problem.replace('be written', 'be read')}" for problem in problems))
    return found.prepared_to_read(registry or {})


def _registered(spark: SparkSession, options: ModelOptions, registry: Mapping[str, Any]) -> StructType | None:
    """The columns of the newest registered schemas: the columns of the value, and those that are only in the key."""
    key_format = options.key_format if options.unique_key else ""
    sides: list[tuple[Role, str, Mapping[str, Any], str]] = [
        ("value", options.value_format, options.value_format_options, ""),
        ("key", key_format, options.key_format_options, options.key_fields_prefix or ""),
    ]
    fields: dict[str, StructField] = {}
    for role, format, settings, prefix in sides:
        schema = avro_confluent.latest_schema(options.topic or "", role, settings, registry) if format == AVRO_CONFLUENT else None
        if schema is not None:
            record = spark.range(0).select(from_avro(F.lit(None).cast("binary"), schema).alias("r")).select("r.*")
            fields = {prefix + f.name: StructField(prefix + f.name, f.dataType) for f in record.schema.fields} | fields
    return StructType(list(fields.values())) if fields else None


def schema_of(spark: SparkSession, model: str, columns: Mapping[str, Mapping[str, Any]]) -> StructType:
    """The columns of the YAML with their types, without the metadata columns."""
    declared = _declared(columns)
    if not declared:
        raise OptionsError(
            f"{model}: a kafka_source needs columns with data_type in the model's YAML; they are the schema of its messages"
        )
    problems = [
        f"{model}: column '{name}' has no data_type; {_NO_DERIVED_COLUMNS}" for name, text in declared.items() if not text
    ]
    fields = []
    for name, text in declared.items():
        if text:
            try:
                fields += spark.range(0).select(F.lit(None).cast(text).alias(name)).schema.fields
            except PySparkException:
                hint = (
                    "; use timestamp_ntz for Flink's TIMESTAMP(n), timestamp for TIMESTAMP_LTZ(n)"
                    if "timestamp" in text.lower()
                    else ""
                )
                problems.append(f"{model}: column '{name}' has data_type '{text}', which is not a type of Spark SQL{hint}")
    if problems:
        raise OptionsError("\n".join(problems))
    return StructType(fields)


def _declared(columns: Mapping[str, Mapping[str, Any]]) -> dict[str, str | None]:
    return {str(c["name"]): c.get("data_type") for c in columns.values() if str(c["name"]).lower() not in {*METADATA, ROW_KIND}}


def query(options: ModelOptions, layout: Records, table: str) -> str:
    """The SQL of `kafka_topic()`: a subquery over `<alias>__topic` with the columns and the metadata columns."""
    return reading.query(layout, table, per_key=bool(options.unique_key), skips=options.ignore_parse_errors)


def _without_reset(kafka: KafkaSettings) -> KafkaSettings:
    """The settings without auto.offset.reset: the offsets are already resolved, and Spark does not accept the property."""
    return replace(kafka, properties={name: value for name, value in kafka.properties.items() if name != "auto.offset.reset"})


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
