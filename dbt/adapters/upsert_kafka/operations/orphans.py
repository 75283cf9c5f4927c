"""Orphans: topics that earlier runs of this project created in this environment and that no model of the project writes to now.

They are found by their state records; nothing is guessed from names. Leaves to `topics` how a topic is deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dbt.adapters.contracts.relation import RelationType
from kafka import KafkaAdminClient
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.catalog import properties, views
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.admin_clients import admin_clients
from dbt.adapters.upsert_kafka.operations.environment import Environment, TopicModel, clusters, delete_topic, trusted
from dbt.adapters.upsert_kafka.options.table import MATERIALIZATIONS
from dbt.adapters.upsert_kafka.publish import snapshots
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.state.record import StateRecord
from dbt.adapters.upsert_kafka.state.store import StateStore


@dataclass(frozen=True)
class Relations:
    """The relations of the project's nodes, by schema and alias."""

    all: Collection[tuple[str, str]]
    of_topics: Collection[tuple[str, str]]
    """Those that have helper tables."""

    @classmethod
    def of(cls, nodes: Mapping[str, Mapping[str, Any]]) -> Relations:
        """Read them from dbt's `graph.nodes`."""
        kinds = {(str(node["schema"]), str(node["alias"])): node["config"].get("materialized") for node in nodes.values()}
        return cls(set(kinds), {name for name, kind in kinds.items() if kind in MATERIALIZATIONS})


@dataclass(frozen=True)
class Orphans:
    """The orphans of one project and environment, on all of its clusters."""

    environment: Environment
    models: Sequence[TopicModel]
    """Those of the project now."""
    relations: Relations

    def report(self, spark: SparkSession, kafka: KafkaSettings, dry_run: bool) -> list[str]:
        """Return one line per orphan; without `dry_run` they are deleted, and a second line reports what was done.

        Args:
            kafka: the profile's cluster.
        """
        lines = []
        with admin_clients() as admin_of:
            for cluster in clusters(kafka, self.models):
                admin = admin_of(cluster)
                store = self.environment.store(cluster, admin)
                for orphan in list(self.find(store, admin)):
                    lines.append(
                        f"topic '{orphan.topic}': created for {orphan.owner.schema}.{orphan.alias}, "
                        "which has no model now or another topic"
                    )
                    if not dry_run:
                        lines.append(self.drop(spark, store, admin, orphan))
        return lines or ["no orphans: every topic that this project created in this environment has a model"]

    def find(self, store: StateStore, admin: KafkaAdminClient) -> Iterator[StateRecord]:
        """Yield the records of the orphans in one cluster."""
        owned = {model.topic for model in self.models}
        for record in self.environment.records(store, admin):
            if record.created and record.topic not in owned and trusted(store, admin, record).created:
                yield record

    def drop(self, spark: SparkSession, store: StateStore, admin: KafkaAdminClient, orphan: StateRecord) -> str:
        """Delete the topic unless a consumer group reads it, its record, and the relations that no model has now.

        Returns:
            What was done, as a sentence.
        """
        if refusal := delete_topic(store, admin, orphan.topic):
            return refusal
        name = (orphan.owner.schema, orphan.alias)
        if name not in self.relations.of_topics:
            _drop_relations(spark, *name, with_view=name not in self.relations.all)
        return f"dropped: topic '{orphan.topic}'"


def _drop_relations(spark: SparkSession, schema: str, alias: str, with_view: bool) -> None:
    """Drop the helper tables of a topic, and its view; nothing that does not have our properties or does not read them."""
    relation = UpsertKafkaRelation.create(schema=schema, identifier=alias, type=RelationType.View)
    if not properties.state(spark, relation):
        return
    if with_view and views.name(relation.topic_table) in _view_text(spark, relation):
        spark.sql(f"DROP VIEW IF EXISTS {views.name(relation)}")
    spark.sql(f"DROP TABLE IF EXISTS {views.name(relation.topic_table)}")
    snapshots.drop(spark, relation)


def _view_text(spark: SparkSession, relation: UpsertKafkaRelation) -> str:
    """The SQL of a view; empty for a table, or if there is no such relation."""
    try:
        rows = spark.sql(f"DESCRIBE EXTENDED {views.name(relation)}").collect()
    except AnalysisException:
        return ""
    return next((row["data_type"] for row in rows if row["col_name"] == "View Text"), "")
