"""A stream for tests without dbt: a kafka_source and a model with a trigger, published as the adapter does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from dbt.adapters.contracts.relation import RelationType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import TopicSettings
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.state.record import Run, now_text
from dbt.adapters.upsert_kafka.state.store import StateSettings, StateStore
from dbt.adapters.upsert_kafka.streaming import pipeline
from dbt.adapters.upsert_kafka.streaming.batches import Batches
from dbt.adapters.upsert_kafka.streaming.pipeline import Streamed, StreamModel
from dbt.adapters.upsert_kafka.streaming.sources import StreamSource
from tests.functional.source_tables import Sources
from tests.functional.topic_writer import Message, write
from tests.tables import Table

COLUMNS = {"user_id": "bigint", "region": "string", "viewtime": "timestamp"}
VIEWS = "SELECT user_id, region, viewtime, kafka_partition, kafka_offset FROM {views}"
PER_REGION = "SELECT region, count(*) AS pv, cast(size(collect_set(user_id)) AS bigint) AS uv FROM {views} GROUP BY region"


class FailsAfterDelivery(Batches):
    def __call__(self, frame: DataFrame, batch: int) -> None:
        super().__call__(frame, batch)
        raise RuntimeError("killed")


class StreamTable(Table):
    """A model that reads the topic `<topic>-views` as a stream. Its default SELECT counts the events of each region."""

    def __init__(self, spark: SparkSession, broker: str, topic: str, schema: str, folder: Path) -> None:
        super().__init__(spark.newSession(), broker, topic, schema)
        self.views = f"{topic}-views"
        self.folder = folder
        self.options = {"unique_key": "region", "trigger": "available-now"}
        self.source_options: dict[str, Any] = {"topic": self.views}
        self.source = Sources(self.spark, broker, f"{schema}_views")
        self.sql = PER_REGION
        self.others: dict[str, dict[str, Any]] = {}
        """The options of further sources, by the name in the SELECT."""
        self.materialization = "upsert_kafka"
        self.sent = 0

    def send(self, events: Iterable[tuple[int, str]], partitions: int = 2) -> None:
        """Append events (user_id, region)."""
        messages = []
        for user, region in events:
            value = {"user_id": user, "region": region, "viewtime": f"2026-11-18 00:00:{self.sent % 60:02}"}
            messages.append(Message(value, partition=self.sent % partitions))
            self.sent += 1
        write(self.broker, self.views, messages, partitions)

    def expose_source(self) -> None:
        for _, source, source_options in self._sources():
            source.run(COLUMNS, **source_options)

    def _sources(self) -> list[tuple[str, Sources, dict[str, Any]]]:
        others = [(name, Sources(self.spark, self.broker, f"{self.schema}_{name}"), given) for name, given in self.others.items()]
        return [("views", self.source, self.source_options), *others]

    def model(self, **config: Any) -> StreamModel:
        """The model. Keywords are options, or fields of the request."""
        of_request = ("full_refresh", "mode", "not_null", "checks", "time_zone")
        request = {name: config.pop(name) for name in of_request if name in config}
        given = {"materialized": self.materialization, **self.options, **config}
        parsed = options.parse(self.materialization, "users", given)
        kafka, sources = KafkaSettings(self.broker, parsed.properties), []
        for name, source, given in self._sources():
            relation = source.relation
            view = UpsertKafkaRelation.create(schema=relation.schema, identifier=relation.identifier, type=RelationType.View)
            source_options = options.parse("kafka_source", name, given)
            sources.append(StreamSource(name, view, source_options, KafkaSettings(self.broker)))
        return StreamModel(
            spark=self.spark,
            sql=self.sql.format(**{source.model: source.view for source in sources}),
            sources=sources if "{views}" in self.sql else (),
            request=Request(
                model="users",
                options=parsed,
                topic=self.topic,
                topic_settings=TopicSettings(partitions=self.partitions, compacted=self.materialization != "kafka"),
                kafka=kafka,
                relation=self.relation,
                owner=self.owner,
                run=Run(str(uuid4()), "test", now_text()),
                existing=self.relation if self.published else None,
                **request,
            ),
            location=self.folder.as_uri(),
        )

    def run(self, **config: Any) -> Streamed:
        """One available-now pass."""
        self.expose_source()
        streamed = pipeline.publish(self.model(**config))
        self.published = True
        return streamed

    def crash_before_first_batch(self, **config: Any) -> None:
        """Begin, and end when Spark has created the checkpoint and has not planned a batch."""
        self.expose_source()
        model = self.model(**config)
        analysed, layout = pipeline.analyse(model)
        with model.request.kafka.admin() as admin, closing(pipeline.begin(model, analysed, layout, admin)) as writer:
            checkpoint = self.folder / self.topic / writer.stream.query
        checkpoint.mkdir(parents=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid4())}))

    def forget(self) -> None:
        """Remove the state record, as if the state topic were lost."""
        store = StateStore(KafkaSettings(self.broker), StateSettings())
        store.forget(self.topic)

    def crash_after_delivery(self, **config: Any) -> None:
        """One pass that fails after a batch was delivered and before Spark's commit log has it, as if the process were killed."""
        self.expose_source()
        model = self.model(**config)
        analysed, layout = pipeline.analyse(model)
        with model.request.kafka.admin() as admin:
            writer = FailsAfterDelivery(**vars(pipeline.begin(model, analysed, layout, admin)))
            with pytest.raises(PySparkException, match="killed"):
                pipeline.start_query(model, writer, availableNow=True).awaitTermination()

    def table(self) -> dict[str, dict[str, Any]]:
        """The last value of every key of the topic, read by an independent client."""
        found: dict[str, dict[str, Any]] = {}
        for key, value in self.latest().items():
            found[json.loads(key)["region"]] = json.loads(value)
        return found

    def batch_result(self, sql: str = PER_REGION) -> dict[str, dict[str, Any]]:
        """What a batch run over the same events has."""
        self.expose_source()
        rows = self.spark.sql(sql.format(views=f"default.{self.source.relation.identifier}")).collect()
        return {row["region"]: row.asDict() for row in rows}
