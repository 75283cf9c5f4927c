"""Creates the relation of a model from the state record of its topic, in a process whose catalog does not have it.

The view is built from the typed columns, formats and options of the record, as a run builds it from the SELECT. Every part of the
record is checked or quoted: a record is data, and contains no SQL. Leaves to `operations.recorded` which record belongs to a
relation and to `views` the statements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.catalog import reading, views
from dbt.adapters.upsert_kafka.errors import OptionsError, StateError
from dbt.adapters.upsert_kafka.formats import Field, Format, Role, Side
from dbt.adapters.upsert_kafka.formats.avro_confluent import SCHEMA_ID
from dbt.adapters.upsert_kafka.formats.records import Records
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.options import format_table
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.sql import quote_identifier
from dbt.adapters.upsert_kafka.state.record import Layout, StateRecord, View


@dataclass(frozen=True)
class Restorable:
    """What a relation is created from: the record, and what records never contain."""

    record: StateRecord
    kafka: KafkaSettings
    registry: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The profile's `schema_registry`."""
    model_registry: Mapping[Role, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """The registry settings of the model's own options, by side."""
    comments: views.Comments = field(default_factory=views.Comments)


def is_restorable(record: StateRecord) -> bool:
    """Whether the record says how to read the topic. A claim does not, nor does a record of an older version."""
    return record.layout is not None and record.view is not None and record.published is not None


def create(spark: SparkSession, relation: UpsertKafkaRelation, source: Restorable) -> None:
    """Create the view of a topic and the table of raw records below it.

    Raises:
        StateError: the record can't be read.
    """
    record = source.record
    assert record.view is not None
    topics.check_name(record.topic)
    layout = layout_of(source).prepared_to_read(source.registry)
    query = reading.view_query(layout, relation, record.view.materialization, record.view.ignore_parse_errors)
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {quote_identifier(str(relation.schema))}")
    before = views.prepare(spark, record.owner.model, relation)
    reader = views.whole_topic(record.topic, source.kafka)
    views.create(spark, views.TopicView(relation, None, reader, query, source.comments), before)


def layout_of(source: Restorable) -> Records:
    """The layout that the record describes.

    Raises:
        StateError: a type, format or option of the record is not known here.
    """
    record = source.record
    assert record.layout is not None and record.view is not None
    try:
        return _layout(record.topic, record.layout, record.view, source.model_registry)
    except (ParseException, OptionsError, ValueError, KeyError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise StateError(
            f"the relation of topic '{record.topic}' can't be created from its state record: {reason}. "
            f"Run the model {record.owner.model}, which writes a new record"
        ) from error


def _layout(topic: str, layout: Layout, view: View, registry: Mapping[Role, Mapping[str, Any]]) -> Records:
    types = _types(layout)
    key_format, key_names, key_options = _side_of(layout.key)
    value_format, value_names, value_options = _side_of(layout.value)
    key = tuple(
        Field(column, name, types[column].dataType, False) for column, name in zip(view.key_columns, key_names, strict=True)
    )
    value = tuple(Field(name, name, types[name].dataType, name not in view.key_columns) for name in value_names)
    return Records(
        key=Side("key", topic, key, {**key_options, **registry.get("key", {})}),
        value=Side("value", topic, value, {**value_options, **registry.get("value", {})}),
        key_format=key_format,
        value_format=value_format,
        columns=tuple(name for name, _ in layout.columns),
    )


def _types(layout: Layout) -> StructType:
    """The columns with their types. Spark parses each type; a text that is more than a type gives other columns."""
    parsed = StructType.fromDDL(", ".join(f"{quote_identifier(name)} {type}" for name, type in layout.columns))
    if not isinstance(parsed, StructType) or parsed.fieldNames() != [name for name, _ in layout.columns]:
        raise ValueError("the types of its columns are not types of Spark")
    return parsed


def _side_of(text: str) -> tuple[Format, list[str], dict[str, Any]]:
    """Format, field names and options of one side, see `Records.key_layout`."""
    found = json.loads(text)
    options = {name: value for name, value in found["options"].items() if name != SCHEMA_ID}
    format = formats.get(found["format"])
    return format, [str(name) for name, _ in found["fields"]], format_table.checked(format.name, options)
