"""What `stream()` reads: a kafka_source as a streaming temporary view.

The SQL of the kafka_source, which decodes the messages, is taken from its view in the catalog. Only the table of raw records
below it is replaced by a stream of the same topics. Leaves startup modes to `source.slices`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kafka import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType, TimestampType

from dbt.adapters.upsert_kafka.catalog import name
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.source import slices
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS
from dbt.adapters.upsert_kafka.sql import quote_identifier
from dbt.adapters.upsert_kafka.state.record import SourceOffsets

GROUP = "group.id"


@dataclass(frozen=True)
class StreamSource:
    """A kafka_source, or the topic of a `kafka` model, that a model reads through `stream()`."""

    model: str
    """Its name."""
    relation: UpsertKafkaRelation
    options: ModelOptions
    kafka: KafkaSettings

    @property
    def view(self) -> str:
        """The name of the streaming view in the compiled SQL of the model."""
        return view_name(self.relation)

    def select(self, spark: SparkSession) -> str:
        """The SQL of the kafka_source."""
        try:
            described = spark.sql(f"DESCRIBE TABLE EXTENDED {name(self.relation)}").collect()
        except SPARK_ERRORS:
            described = []
        text = next((row["data_type"] for row in described if row["col_name"] == "View Text"), None)
        if text is None:
            raise OptionsError(f"stream(): {self.model} has no view yet. Run it first: `dbt run --select {self.model}`")
        return str(text)


def view_name(relation: UpsertKafkaRelation) -> str:
    """The name of a relation's streaming view.

    >>> view_name(UpsertKafkaRelation.create(schema="analytics", identifier="pageviews"))
    'stream_of__analytics__pageviews'
    """
    return f"stream_of__{relation.schema}__{relation.identifier}"


def problems(source: StreamSource) -> list[str]:
    """Why a kafka_source can't be read as a stream, one sentence each."""
    options, found = source.options, []
    if options.unique_key:
        found.append(
            f"stream(): the kafka_source {source.model} has a unique_key, so its rows are the last record of each key, which a "
            "stream does not know. Read it with ref(), or use a kafka_source without unique_key"
        )
    if options.scan_startup_mode == "group-offsets":
        found.append(
            f"stream(): the kafka_source {source.model} starts at the offsets of a consumer group. A stream keeps its own "
            "offsets and commits no group; set scan_startup_mode of the source, such as earliest-offset"
        )
    if options.scan_bounded_mode != "latest-offset":
        found.append(
            f"stream(): the kafka_source {source.model} has scan_bounded_mode={options.scan_bounded_mode}, and a stream has no "
            "end; remove it"
        )
    return found


def first_offsets(admin: KafkaAdminClient, source: StreamSource) -> SourceOffsets:
    """Where a stream without a checkpoint begins: the startup mode, resolved now."""
    covered = slices.resolve(admin, source.model, source.options)
    return {topic: {p: start for p, (start, _) in bounds.items()} for topic, bounds in covered.bounds.items()}


def create_view(spark: SparkSession, source: StreamSource, offsets: SourceOffsets | None = None) -> DataFrame:
    """Create the streaming view.

    Args:
        offsets: where to begin if there is no checkpoint; None if the query is only analysed.
    """
    options = source.options
    kafka = replace(source.kafka, properties=_without_group(source.kafka.properties))
    subscription = (
        {"subscribePattern": options.topic_pattern} if options.topic_pattern else {"subscribe": ",".join(options.topics)}
    )
    start = "earliest" if offsets is None else json.dumps(offsets)
    reader = {**kafka.spark_source(), **subscription, "startingOffsets": start, "includeHeaders": "true"}
    raw = f"{source.view}__topic"
    spark.readStream.format("kafka").options(**reader).load().createOrReplaceTempView(raw)
    table, text = name(source.relation.topic_table), source.select(spark)
    if table not in text:
        raise OptionsError(
            f"stream(): the SQL of the kafka_source {source.model} does not select from kafka_topic(). Run the source again, or "
            "read it with ref()"
        )
    rows = _with_watermark(spark.sql(text.replace(table, quote_identifier(raw))), source)
    rows.createOrReplaceTempView(source.view)
    return rows


def _with_watermark(rows: DataFrame, source: StreamSource) -> DataFrame:
    for column, delay in source.options.watermark.items():
        field = next((field for field in rows.schema.fields if field.name.lower() == column.lower()), None)
        if field is None:
            raise OptionsError(
                f"watermark: the kafka_source {source.model} has no column {column}, its columns are {', '.join(rows.columns)}"
            )
        if isinstance(field.dataType, TimestampNTZType):
            rows = rows.withColumn(field.name, F.col(quote_identifier(field.name)).cast(TimestampType()))
        elif not isinstance(field.dataType, TimestampType):
            raise OptionsError(
                f"watermark: column {column} of the kafka_source {source.model} has type {field.dataType.simpleString()}; it "
                "must be a timestamp"
            )
        rows = rows.withWatermark(field.name, f"{int(delay.total_seconds() * 1000)} milliseconds")
    return rows


def _without_group(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties without those of a consumer group: Spark has a group of its own for each query."""
    return {key: value for key, value in properties.items() if key not in (GROUP, "auto.offset.reset")}
