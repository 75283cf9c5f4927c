"""Table properties as a key-value store: what the helper tables say about themselves.

One of them marks a helper table as ours. What is remembered about a topic is in its state record, see `state`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.catalog import name
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.sql import quote_literal

OURS = "upsert_kafka."
"""Prefix of our properties: Spark and Hive add others to every table."""
MARK = f"{OURS}helper_of"
"""The relation that a helper table belongs to. Set in CREATE TABLE: a table without this mark is never dropped or replaced."""
FINGERPRINT = f"{OURS}fingerprint"
"""Hash of the statements that created table and view: equal statements are not executed again."""


def state(spark: SparkSession, relation: UpsertKafkaRelation) -> dict[str, str]:
    """The properties of the table of raw records; empty before the first run."""
    return read(spark, relation.topic_table)


def read(spark: SparkSession, table: UpsertKafkaRelation) -> dict[str, str]:
    """Our properties of a table; empty if the table does not exist."""
    return find(spark, table) or {}


def find(spark: SparkSession, table: UpsertKafkaRelation) -> dict[str, str] | None:
    """Our properties of a table, without the mark if the table is not ours; None if the table does not exist."""
    try:
        properties = spark.sql(f"SHOW TBLPROPERTIES {name(table)}").collect()
    except AnalysisException:
        return None
    return {row["key"]: bytes.fromhex(row["value"]).decode() for row in properties if row["key"].startswith(OURS)}


def mark(relation: UpsertKafkaRelation) -> dict[str, str]:
    """The property that marks the helper tables of a relation as ours."""
    return {MARK: f"{relation.schema}.{relation.identifier}"}


def save(spark: SparkSession, table: UpsertKafkaRelation, properties: Mapping[str, str]) -> None:
    """Set properties of an existing table; others stay as they are."""
    spark.sql(f"ALTER TABLE {name(table)} SET TBLPROPERTIES ({listed(properties)})")


def listed(properties: Mapping[str, str]) -> str:
    """The properties as SQL text for TBLPROPERTIES.

    Values are hexadecimal: Spark redacts the value of a property that contains a word such as `url` or `token`,
    and such a word may be the name of a column.
    """
    return ", ".join(f"{quote_literal(key)} = '{value.encode().hex()}'" for key, value in properties.items())
