"""What `stream()` reads: a kafka_source as a streaming temporary view.

The SQL of the kafka_source, which decodes the messages, is taken from its view in the catalog. Only the table of raw records
below it is replaced by a stream of the same topics. Leaves startup modes to `source.slices`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka.catalog import name
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.source import slices
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS
from dbt.adapters.upsert_kafka.sql import quote_identifier
from dbt.adapters.upsert_kafka.state.record import DELTA, SourceOffsets
from dbt.adapters.upsert_kafka.streaming.watermarks import with_watermark

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


def first_offsets(model: str, streams: Sequence[StreamSource], known: SourceOffsets | None = None) -> SourceOffsets:
    """Where the sources of a stream without a checkpoint begin.

    Args:
        known: where a stream continues, which has begun before. Topics and partitions that were added since begin at their
            first record. None for a stream that begins now, as the startup modes say.

    Raises:
        OptionsError: two sources read the same topic.
    """
    offsets: dict[str, dict[int, int]] = {}
    for source in streams:
        options = source.options if known is None else replace(source.options, scan_startup_mode="earliest-offset")
        with source.kafka.admin() as admin:
            bounds = slices.resolve(admin, source.model, options).bounds
        for topic, partitions in bounds.items():
            offsets[topic] = {**{p: start for p, (start, _) in partitions.items()}, **(known or {}).get(topic, {})}
    check_once(model, streams, offsets)
    return offsets


def of_source(source: StreamSource, offsets: SourceOffsets) -> SourceOffsets:
    """The offsets of the topics that one source reads."""
    own = (name for name in offsets if not name.startswith(DELTA) and slices.covers(source.options, name))
    return {topic: offsets[topic] for topic in own}


def check_once(model: str, streams: Sequence[StreamSource], names: Iterable[str]) -> None:
    """Refuse a topic of two sources: the progress of a stream has one offset for each partition of a topic's name.

    Raises:
        OptionsError: names the sources.
    """
    for topic in sorted(names):
        found = [source for source in streams if slices.covers(source.options, topic)]
        if len(found) > 1:
            where = "" if len({source.kafka.bootstrap_servers for source in found}) == 1 else ", on different clusters"
            raise OptionsError(
                f"model {model}: the kafka_sources {' and '.join(source.model for source in found)} both read a topic "
                f"'{topic}'{where}, and a stream reads a topic once. Use one kafka_source for it; the SELECT may have "
                "stream() of it several times. Nothing was started."
            )


def topic_ids(streams: Sequence[StreamSource], names: Iterable[str]) -> dict[str, str]:
    """The ids of source topics that exist; empty texts from brokers that have no ids."""
    ids: dict[str, str] = {}
    wanted: SourceOffsets = {name: {} for name in names}
    for source in streams:
        if own := of_source(source, wanted):
            with source.kafka.admin() as admin:
                found = {name: topics.describe(admin, name) for name in own}
            ids |= {name: topic.id for name, topic in found.items() if topic is not None}
    return ids


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
    rows = spark.sql(text.replace(table, quote_identifier(raw)))
    rows = with_watermark(rows, options.watermark, f"kafka_source {source.model}")
    rows.createOrReplaceTempView(source.view)
    return rows


def _without_group(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties without those of a consumer group: Spark has a group of its own for each query."""
    return {key: value for key, value in properties.items() if key not in (GROUP, "auto.offset.reset")}
