"""Topics that earlier runs of this project made and no model owns any more; known by a mark that those runs left, never guessed.

The mark is a property of `<alias>__topic` in the catalog. Leaves to `topics` how one is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from dbt.adapters.contracts.relation import RelationType
from kafka import KafkaAdminClient
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import snapshots, topics, views
from dbt.adapters.upsert_kafka.relation import TOPIC_SUFFIX, UpsertKafkaRelation
from dbt.adapters.upsert_kafka.sql import quote_identifier


@dataclass(frozen=True)
class Orphan:
    """A topic without a model, and the relation that its last run made."""

    topic: str
    relation: UpsertKafkaRelation
    servers: str | None = None
    """Its cluster, None for the profile's."""


def find(spark: SparkSession, schemas: Iterable[str], project: str, owned: Collection[str]) -> Iterator[Orphan]:
    """The orphans in the catalog.

    Args:
        schemas: where the project's relations are.
        owned: the topics of the project's models.
    """
    for schema in sorted(set(schemas)):
        for relation in _relations(spark, schema):
            state = views.state(spark, relation)
            if state.get(views.PROJECT) == project:
                for topic in json.loads(state.get(views.MADE, "[]")):
                    if topic not in owned:
                        yield Orphan(topic, relation, state.get(views.SERVERS))


def drop(spark: SparkSession, admin: KafkaAdminClient, orphan: Orphan, has_model: bool) -> str:
    """Delete the topic unless somebody reads it, and forget it in the catalog.

    Args:
        has_model: whether a model of the project has the relation's name, so that the relation is not the orphan's.

    Returns:
        What was done, as a sentence.
    """
    readers = topics.readers(admin, orphan.topic)
    if readers:
        return f"refused: topic '{orphan.topic}' is read by {', '.join(readers)}; stop these groups first"
    found = topics.delete(admin, orphan.topic)
    state = views.state(spark, orphan.relation)
    if state.get(views.TOPIC) == orphan.topic:
        if not has_model:
            spark.sql(f"DROP VIEW IF EXISTS {views.name(orphan.relation)}")
        spark.sql(f"DROP TABLE IF EXISTS {views.name(orphan.relation.topic_table)}")
        snapshots.drop(spark, orphan.relation)
    else:
        left = json.dumps([topic for topic in json.loads(state[views.MADE]) if topic != orphan.topic])
        views.remember(spark, orphan.relation.topic_table, {views.MADE: left})
    return f"dropped: topic '{orphan.topic}'" + ("" if found else ", which was gone already")


def _relations(spark: SparkSession, schema: str) -> list[UpsertKafkaRelation]:
    try:
        tables = spark.sql(f"SHOW TABLES IN {quote_identifier(schema)} LIKE '*{TOPIC_SUFFIX}'").collect()
    except AnalysisException:
        return []
    names = sorted(row["tableName"].removesuffix(TOPIC_SUFFIX) for row in tables)
    return [UpsertKafkaRelation.create(schema=schema, identifier=name, type=RelationType.View) for name in names]
