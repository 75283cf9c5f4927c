"""A model for tests without dbt: publish rows as the adapter does, and read the topic with another Kafka client.

Tests of the catalog, sessions and exit codes need a separate process and run dbt instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa
from dbt.adapters.contracts.relation import RelationType
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import TopicSettings
from dbt.adapters.upsert_kafka.publish import append, pipeline
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.state.record import Owner, Run, StateRecord, now_text
from dbt.adapters.upsert_kafka.state.store import StateSettings, StateStore
from tests.services import Record, end_offsets, read_topic

Rows = Sequence[tuple[Any, ...]]


class Table:
    """One model, by default with the columns `id int, name string`."""

    columns = "id int, name string"
    materialization = "upsert_kafka"

    def __init__(self, spark: SparkSession, broker: str, topic: str, schema: str, partitions: int = 2) -> None:
        self.spark, self.broker, self.topic, self.schema = spark, broker, topic, schema
        self.partitions = partitions
        self.relation = UpsertKafkaRelation.create(schema=schema, identifier="users", type=RelationType.View)
        self.options: dict[str, Any] = {"unique_key": "id"}
        self.owner = Owner("shop", "dev", schema, "users")
        self.published = False
        self.kafka: Mapping[str, str] = {}
        """Client properties, as in a profile's `kafka`."""
        self.secured_at: str | None = None
        """The bootstrap servers that `publish` uses, if the test itself uses others."""
        spark.sql(f"CREATE DATABASE IF NOT EXISTS `{schema}`")

    def publish(self, rows: Rows | DataFrame | str, columns: str | None = None, **config: Any) -> Any:
        """Publish rows, a DataFrame or a SELECT. Keywords are options of the model, or fields of the Request."""
        of_constraints, of_run = ("not_null", "checks", "on_schema_change"), ("full_refresh", "mode", "owner", "run", "time_zone")
        of_plan = ("samples", "report", "planned")
        of_request = (*of_constraints, *of_run, *of_plan, "registry", "state", "groups", "on_configuration_change")
        request = {name: config.pop(name) for name in of_request if name in config}
        settings = {**self.options, **config}
        parsed = options.parse(self.materialization, "users", {"materialized": self.materialization, **settings})
        run = append.append if parsed.appends else pipeline.publish
        publication = run(
            self.spark,
            self._frame(rows, columns),
            Request(
                model="users",
                options=parsed,
                topic=self.topic,
                topic_settings=TopicSettings(
                    partitions=self.partitions,
                    replication_factor=parsed.replication_factor,
                    config=parsed.topic_config,
                    compacted=self.materialization == "upsert_kafka",
                ),
                kafka=KafkaSettings(self.secured_at or self.broker, {**self.kafka, **parsed.properties}),
                relation=self.relation,
                **{"owner": self.owner, "run": Run(str(uuid4()), "test", now_text()), **request},
                existing=self.relation if self.published else None,
            ),
        )
        self.published = self.published or request.get("mode") != "preview"
        return publication

    def _frame(self, rows: Rows | DataFrame | str, columns: str | None) -> DataFrame:
        if isinstance(rows, str):
            return self.spark.sql(rows)
        if isinstance(rows, DataFrame):
            return rows
        if columns is not None or self.columns != Table.columns:
            return self.spark.createDataFrame(list(rows), columns or self.columns)
        # Arrow needs no Python worker, which saves three quarters of the time.
        ids, names = ([row[i] for row in rows] for i in (0, 1))
        return self.spark.createDataFrame(pa.table({"id": pa.array(ids, pa.int32()), "name": pa.array(names, pa.string())}))

    def state_record(self) -> StateRecord | None:
        """The topic's state record, as another process reads it."""
        store, kafka = StateStore(KafkaSettings(self.broker), StateSettings()), KafkaSettings(self.broker)
        with kafka.admin() as admin:
            store.access(admin)
            return store.get(admin, self.topic)

    def adopt(self, topic: str | None = None) -> None:
        """Make this model the owner of the topic, as `dbt run-operation adopt_topic` does."""
        name, kafka = topic or self.topic, KafkaSettings(self.broker)
        store = StateStore(kafka, StateSettings())
        with kafka.admin() as admin:
            store.prepare(admin)
            found = topics.describe(admin, name)
            assert found is not None
            run = Run("adopt", "test", now_text())
            store.put(StateRecord(name, store.cluster_id(admin), found.id or None, self.owner, "users", run))

    def view(self) -> list[tuple[Any, ...]]:
        """The rows of the view that ref() reads, sorted."""
        return sorted(tuple(row) for row in self.spark.table(f"`{self.schema}`.users").collect())

    def records(self) -> list[Record]:
        return read_topic(self.broker, self.topic)

    def end(self) -> dict[int, int]:
        return end_offsets(self.broker, self.topic)

    def new_records(self, before: dict[int, int]) -> list[Record]:
        return [record for record in self.records() if record.offset >= before.get(record.partition, 0)]

    def latest(self) -> dict[bytes, bytes]:
        """The last value of every key, as a consumer of a compacted topic sees it."""
        last: dict[bytes, bytes | None] = {}
        for record in self.records():
            if record.key is not None:
                last[record.key] = record.value
        return {key: value for key, value in last.items() if value is not None}

    def write_by_hand(self, *records: tuple[bytes, bytes | None, int]) -> None:
        """Write records as another writer: key, value, partition."""
        producer = KafkaProducer(bootstrap_servers=self.broker)
        for key, value, partition in records:
            producer.send(self.topic, key=key, value=value, partition=partition).get(timeout=30)
        producer.close()


def json_key(value: int) -> bytes:
    return json.dumps({"id": value}, separators=(",", ":")).encode()


def json_value(row: tuple[Any, ...], names: Sequence[str] = ("id", "name")) -> bytes:
    return json.dumps(dict(zip(names, row, strict=True)), separators=(",", ":"), ensure_ascii=False).encode()
