"""What `ref()`, `dbt test` and `dbt docs` read: the catalog table of a topic's raw records and the view that is the table.

Both read the real topic, in this process and in any later one. Leaves to `records` how bytes become columns.
"""

from __future__ import annotations

import hashlib

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.records import Records
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.sql import quote_identifier, quote_literal

FINGERPRINT = "upsert_kafka.fingerprint"

# Inside a partition the offset decides which record is the last; between partitions only others' writes need deciding.
LAST_PER_KEY = """(
  SELECT key, value FROM (
    SELECT key, max_by(value, struct(timestamp, partition)) AS value FROM (
      SELECT key, partition, max_by(value, offset) AS value, max_by(timestamp, offset) AS timestamp
      FROM {table} WHERE key IS NOT NULL GROUP BY key, partition
    ) GROUP BY key
  ) WHERE value IS NOT NULL
)"""


def expose(
    spark: SparkSession,
    relation: UpsertKafkaRelation,
    existing: UpsertKafkaRelation | None,
    topic: str,
    kafka: KafkaSettings,
    records: Records,
) -> None:
    """Create `<alias>__topic` and the view `<alias>`; what is there already and the same is left alone.

    Args:
        existing: what has the relation's name now; a table makes way for the view.
    """
    table, view = _name(relation.topic_table), _name(relation)
    table_sql = _topic_table(table, topic, kafka)
    view_sql = f"CREATE OR REPLACE VIEW {view} AS {records.decode(LAST_PER_KEY.format(table=table))}"
    fingerprint = hashlib.sha256((table_sql + view_sql).encode()).hexdigest()
    if existing is not None and existing.is_view and _fingerprint(spark, table) == fingerprint:
        return
    if existing is not None and not existing.is_view:
        spark.sql(f"DROP TABLE IF EXISTS {view}")
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    spark.sql(f"{table_sql} TBLPROPERTIES ({quote_literal(FINGERPRINT)} = {quote_literal(fingerprint)})")
    spark.sql(view_sql)


def _topic_table(table: str, topic: str, kafka: KafkaSettings) -> str:
    options = {**kafka.catalog(), "subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
    listed = ", ".join(f"{quote_literal(name)} {quote_literal(value)}" for name, value in sorted(options.items()))
    return f"CREATE TABLE {table} USING kafka OPTIONS ({listed})"


def _fingerprint(spark: SparkSession, table: str) -> str | None:
    try:
        properties = spark.sql(f"SHOW TBLPROPERTIES {table}").collect()
    except AnalysisException:
        return None
    return dict((row["key"], row["value"]) for row in properties).get(FINGERPRINT)


def _name(relation: UpsertKafkaRelation) -> str:
    return f"{quote_identifier(relation.schema)}.{quote_identifier(relation.identifier)}"
