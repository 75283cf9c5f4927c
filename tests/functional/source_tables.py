"""kafka_source models for tests without dbt: created as the adapter does, and read as a DataFrame."""

from __future__ import annotations

import re
from typing import Any

from dbt.adapters.contracts.relation import RelationType
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.catalog import views
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.source import source
from dbt.adapters.upsert_kafka.source.source import Reading


class Sources:
    """Runs kafka_source models on the Spark of the test session, without dbt."""

    def __init__(self, spark: SparkSession, broker: str, name: str) -> None:
        self.spark, self.broker = spark, broker
        identifier = re.sub(r"\W+", "_", name.lower())[:100]
        self.relation = UpsertKafkaRelation.create(schema="default", identifier=identifier, type=RelationType.View)

    def run(self, columns: dict[str, str], select: str = "*", **config: Any) -> Reading:
        parsed = options.parse("kafka_source", "events", config)
        declared = {name: {"name": name, "data_type": data_type} for name, data_type in columns.items()}
        layout = source.layout(self.spark, "events", parsed, declared)
        sql = f"SELECT {select} FROM {source.query(parsed, layout, views.name(self.relation.topic_table))}"
        kafka = KafkaSettings(self.broker, parsed.properties)
        return source.expose(self.spark, sql, layout, source.Request("events", parsed, kafka, self.relation))

    @property
    def table(self) -> DataFrame:
        return self.spark.table(views.name(self.relation))

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in self.table.collect()), key=repr)
