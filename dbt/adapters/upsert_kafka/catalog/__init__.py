"""What the Spark catalog has of a topic: the view that `ref()` reads, the table of raw records below it, and table properties."""

from __future__ import annotations

from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.sql import quote_identifier


def name(relation: UpsertKafkaRelation) -> str:
    """The relation's quoted name for SQL text. dbt-spark renders names without quotes."""
    return f"{quote_identifier(str(relation.schema))}.{quote_identifier(str(relation.identifier))}"
