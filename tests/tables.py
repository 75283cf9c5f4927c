"""A model's table and its topic without dbt: rows in, `publish` as dbt calls it, records out by an independent reader.

What needs a process of its own (catalog, sessions, exit codes) is tested through dbt instead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from dbt.adapters.contracts.relation import RelationType
from kafka import KafkaProducer
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import append, options, publish
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.publish import Request
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.topics import Wanted
from tests.services import Record, end_offsets, read_topic

Rows = Sequence[tuple[Any, ...]]


class Table:
    """One model: `id int, name string` unless told otherwise."""

    columns = "id int, name string"
    materialization = "upsert_kafka"

    def __init__(self, spark: SparkSession, broker: str, topic: str, schema: str, partitions: int = 2) -> None:
        self.spark, self.broker, self.topic, self.schema = spark, broker, topic, schema
        self.partitions = partitions
        self.relation = UpsertKafkaRelation.create(schema=schema, identifier="users", type=RelationType.View)
        self.options: dict[str, Any] = {"unique_key": "id"}
        self.published = False
        self.kafka: Mapping[str, str] = {}
        """Client properties, as a profile's `kafka`."""
        self.secured_at: str | None = None
        """Where `publish` reaches the broker, if that is elsewhere than where the test looks at it."""
        spark.sql(f"CREATE DATABASE IF NOT EXISTS `{schema}`")

    def publish(self, rows: Rows | DataFrame | str, columns: str | None = None, **config: Any) -> Any:
        """Publish rows, a DataFrame or a SELECT; keywords are options, or what a dbt command would say."""
        said = ("full_refresh", "mode", "registry", "on_schema_change", "not_null", "project")
        request = {name: config.pop(name) for name in said if name in config}
        settings = {**self.options, **config}
        parsed = options.parse(self.materialization, "users", {"materialized": self.materialization, **settings})
        run = append.append if parsed.appends else publish.publish
        publication = run(
            self.spark,
            self._frame(rows, columns),
            Request(
                model="users",
                options=parsed,
                topic=self.topic,
                wanted=Wanted(
                    partitions=self.partitions,
                    config=parsed.topic_config,
                    compacted=self.materialization == "upsert_kafka",
                ),
                kafka=KafkaSettings(self.secured_at or self.broker, {**self.kafka, **parsed.properties}),
                relation=self.relation,
                existing=self.relation if self.published else None,
                **request,
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
        # Through Arrow, which needs no Python worker and takes a quarter of the time.
        ids, names = ([row[i] for row in rows] for i in (0, 1))
        return self.spark.createDataFrame(pa.table({"id": pa.array(ids, pa.int32()), "name": pa.array(names, pa.string())}))

    def view(self) -> list[tuple[Any, ...]]:
        """What ref() reads, sorted."""
        return sorted(tuple(row) for row in self.spark.table(f"`{self.schema}`.users").collect())

    def records(self) -> list[Record]:
        return read_topic(self.broker, self.topic)

    def end(self) -> dict[int, int]:
        return end_offsets(self.broker, self.topic)

    def new_records(self, before: dict[int, int]) -> list[Record]:
        return [record for record in self.records() if record.offset >= before.get(record.partition, 0)]

    def latest(self) -> dict[bytes, bytes]:
        """The last value of every key, as any consumer of a compacted topic sees it."""
        last: dict[bytes, bytes | None] = {}
        for record in self.records():
            if record.key is not None:
                last[record.key] = record.value
        return {key: value for key, value in last.items() if value is not None}

    def write_by_hand(self, *records: tuple[bytes, bytes | None, int]) -> None:
        """Records of another writer: key, value, partition."""
        producer = KafkaProducer(bootstrap_servers=self.broker)
        for key, value, partition in records:
            producer.send(self.topic, key=key, value=value, partition=partition).get(timeout=30)
        producer.close()


def json_key(value: int) -> bytes:
    return json.dumps({"id": value}, separators=(",", ":")).encode()


def json_value(row: tuple[Any, ...], names: Sequence[str] = ("id", "name")) -> bytes:
    return json.dumps(dict(zip(names, row, strict=True)), separators=(",", ":"), ensure_ascii=False).encode()
