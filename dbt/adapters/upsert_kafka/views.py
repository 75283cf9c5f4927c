"""What `ref()`, `dbt test` and `dbt docs` read: the catalog table of a topic's raw records and the view that is the table.

Both read the real topic, in this process and in any later one. Leaves to `records` how bytes become columns.
"""

from __future__ import annotations

import hashlib

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.records import Records
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.sql import quote_identifier, quote_literal

FINGERPRINT, KEY_LAYOUT, PUBLISHED = "upsert_kafka.fingerprint", "upsert_kafka.key_layout", "upsert_kafka.published"

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
    published: bool,
) -> None:
    """Create `<alias>__topic` and the view `<alias>`; what is there already and the same is left alone.

    Args:
        existing: what has the relation's name now; a table makes way for the view.
        published: whether a run has published; --empty makes a view too.
    """
    table, view = _name(relation.topic_table), _name(relation)
    table_sql = _topic_table(table, topic, kafka)
    view_sql = f"CREATE OR REPLACE VIEW {view} AS {records.decode(LAST_PER_KEY.format(table=table))}"
    before = state(spark, relation) if existing is not None and existing.is_view else {}
    fingerprint = hashlib.sha256((table_sql + view_sql).encode()).hexdigest()
    properties = {
        FINGERPRINT: fingerprint,
        KEY_LAYOUT: records.key_layout(),
        PUBLISHED: str(published or before.get(PUBLISHED) == "True"),
    }
    if properties.items() <= before.items():
        return
    if existing is not None and not existing.is_view:
        spark.sql(f"DROP TABLE IF EXISTS {view}")
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    listed = ", ".join(f"{quote_literal(name)} = {quote_literal(value)}" for name, value in properties.items())
    spark.sql(f"{table_sql} TBLPROPERTIES ({listed})")
    spark.sql(view_sql)


def _topic_table(table: str, topic: str, kafka: KafkaSettings) -> str:
    options = {**kafka.catalog(), "subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
    listed = ", ".join(f"{quote_literal(name)} {quote_literal(value)}" for name, value in sorted(options.items()))
    return f"CREATE TABLE {table} USING kafka OPTIONS ({listed})"


def state(spark: SparkSession, relation: UpsertKafkaRelation) -> dict[str, str]:
    """What the last run left in the catalog about itself; nothing before the first one."""
    try:
        properties = spark.sql(f"SHOW TBLPROPERTIES {_name(relation.topic_table)}").collect()
    except AnalysisException:
        return {}
    return {row["key"]: row["value"] for row in properties}


def columns(spark: SparkSession, relation: UpsertKafkaRelation) -> StructType:
    """The columns that the view exposes now."""
    return spark.table(_name(relation)).schema


def _name(relation: UpsertKafkaRelation) -> str:
    return f"{quote_identifier(str(relation.schema))}.{quote_identifier(str(relation.identifier))}"
