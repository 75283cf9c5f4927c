"""What `ref()`, `dbt test` and `dbt docs` read: the catalog table of a topic's raw records and the view that is the table.

Both read the real topic, in this process and in any later one. Leaves to `records` how bytes become columns.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.records import Records
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.sql import quote_identifier, quote_literal

OURS = "upsert_kafka."
FINGERPRINT, KEY_LAYOUT, PUBLISHED = f"{OURS}fingerprint", f"{OURS}key_layout", f"{OURS}published"
TOPIC, SERVERS, PROJECT = f"{OURS}topic", f"{OURS}bootstrap_servers", f"{OURS}project"
# Topics that runs of the project made for this relation, former ones included: what an orphan is known by.
MADE = f"{OURS}made"
# When a run wrote last, and where the topic's partitions ended then.
PUBLICATION = f"{OURS}publication"

MOST_IN_DERBY = 32_700

# Inside a partition the offset decides which record is the last; between partitions only others' writes need deciding.
# Spark leaves out what a query over it does not use.
LAST_PER_KEY = """(
  SELECT * FROM (
    SELECT key, max_by(value, age) AS value, max_by(topic, age) AS topic, max_by(partition, age) AS partition,
      max_by(offset, age) AS offset, max(timestamp) AS timestamp, max_by(headers, age) AS headers
    FROM (
      SELECT *, struct(timestamp, topic, partition) AS age FROM (
        SELECT key, topic, partition, max_by(value, offset) AS value, max(offset) AS offset,
          max_by(timestamp, offset) AS timestamp, max_by(headers, offset) AS headers
        FROM {table} WHERE key IS NOT NULL GROUP BY key, topic, partition
      )
    ) GROUP BY key
  ) WHERE value IS NOT NULL
)"""


@dataclass(frozen=True)
class Comments:
    """Descriptions that the catalog keeps, as the model's persist_docs asks."""

    relation: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ownership:
    """Whose topic it is."""

    project: str = ""
    servers: str | None = None
    """The model's own cluster, None for the profile's."""
    made: bool = False
    """Whether this run made the topic."""


def expose(
    spark: SparkSession,
    relation: UpsertKafkaRelation,
    existing: UpsertKafkaRelation | None,
    topic: str,
    kafka: KafkaSettings,
    records: Records,
    published: bool,
    query: str,
    comments: Comments | None = None,
    owner: Ownership | None = None,
    end: Mapping[int, int] | None = None,
    keys: int | None = None,
    before: Mapping[str, str] | None = None,
) -> str | None:
    """Show all that the topic holds as `query` says.

    Args:
        before: the relation's `state`, if somebody has asked already.
        published: whether a run has published; --empty makes a view too.
        end: where each partition ends after what this run wrote, None if it wrote nothing.
        keys: how many live keys that leaves, if known.

    Returns:
        The topic that the relation showed before, if that was another one.
    """
    owner = owner or Ownership()
    before = state(spark, relation) if before is None else before
    was_published = existing is not None and existing.is_view and before.get(PUBLISHED) == "True"
    made = {*json.loads(before.get(MADE, "[]")), *([topic] if owner.made else [])}
    facts = {
        KEY_LAYOUT: records.key_layout(),
        PUBLISHED: str(published or was_published),
        TOPIC: topic,
        PROJECT: owner.project,
        **({SERVERS: owner.servers} if owner.servers else {}),
        **({MADE: json.dumps(sorted(made))} if made else {}),
        **({PUBLICATION: before[PUBLICATION]} if PUBLICATION in before and before.get(TOPIC) == topic else {}),
    }
    create(spark, relation, existing, before, whole_topic(topic, kafka), query, facts, comments)
    if end is not None:
        remember(spark, relation.topic_table, {PUBLICATION: json.dumps({"at": time_text(time.time()), "end": end, "keys": keys})})
    return before[TOPIC] if before.get(TOPIC, topic) != topic else None


def length_problem(spark: SparkSession, query: str) -> str | None:
    """Why the catalog can't keep a view; better said before anything is written than after."""
    catalog = spark.conf.get("spark.hadoop.javax.jdo.option.ConnectionURL", "") or ""
    if not catalog.startswith("jdbc:derby") or len(query) <= MOST_IN_DERBY:
        return None
    return (
        f"the query of its view has {len(query)} characters, and the project's own catalog keeps {MOST_IN_DERBY}: select fewer "
        "columns or put some of them into a struct, or point spark.hadoop.hive.metastore.uris in your profile to a metastore"
    )


def last_per_key(relation: UpsertKafkaRelation, records: Records, skips: bool) -> str:
    """The topic as the table that it is: the last record of each key, decoded; see `Records.decode`."""
    return records.decode(LAST_PER_KEY.format(table=name(relation.topic_table)), skips)


def create(
    spark: SparkSession,
    relation: UpsertKafkaRelation,
    existing: UpsertKafkaRelation | None,
    before: Mapping[str, str],
    reader: Mapping[str, str],
    query: str,
    facts: Mapping[str, str] | None = None,
    comments: Comments | None = None,
) -> None:
    """Create `<alias>__topic` and the view `<alias>`; what is there already and the same is left alone.

    Args:
        existing: what has the relation's name now; a table makes way for the view.
        before: the relation's `state`.
        reader: options of Spark's Kafka source.
        query: the view's, over `<alias>__topic`.
        facts: what the next run must know of this one, by the names of table properties.
        comments: of the view.
    """
    comments = comments or Comments()
    table, view = name(relation.topic_table), name(relation)
    options = ", ".join(f"{quote_literal(option)} {quote_literal(value)}" for option, value in sorted(reader.items()))
    table_sql = f"CREATE TABLE {table} USING kafka OPTIONS ({options})"
    meant = table_sql + f"{view} {comments.relation} {sorted(comments.columns.items())} {query}"
    properties = {FINGERPRINT: hashlib.sha256(meant.encode()).hexdigest(), **(facts or {})}
    if existing is not None and existing.is_view and properties.items() <= before.items():
        return
    if existing is not None and not existing.is_view:
        spark.sql(f"DROP TABLE IF EXISTS {view}")
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    spark.sql(f"{table_sql} TBLPROPERTIES ({_listed(properties)})")
    spark.sql(f"CREATE OR REPLACE VIEW {view}{_documented(spark, query, comments)} AS {query}")


def _documented(spark: SparkSession, query: str, comments: Comments) -> str:
    of_columns = ""
    if comments.columns:
        by_name = {column.lower(): text for column, text in comments.columns.items()}
        texts = {column: by_name.get(column.lower()) for column in spark.sql(query).columns}
        listed = (quote_identifier(c) + (f" COMMENT {quote_literal(text)}" if text else "") for c, text in texts.items())
        of_columns = f" ({', '.join(listed)})"
    return of_columns + (f" COMMENT {quote_literal(comments.relation)}" if comments.relation else "")


def whole_topic(topic: str, kafka: KafkaSettings) -> dict[str, str]:
    """Reader options for all that the topic holds whenever it is read."""
    return {**kafka.catalog(), "subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}


def remember(spark: SparkSession, table: UpsertKafkaRelation, facts: Mapping[str, str]) -> None:
    """Change what a table's properties keep for us."""
    spark.sql(f"ALTER TABLE {name(table)} SET TBLPROPERTIES ({_listed(facts)})")


def _listed(properties: Mapping[str, str]) -> str:
    # As hexadecimal digits, because Spark hides the value of a property that holds words such as url or token.
    return ", ".join(f"{quote_literal(key)} = '{value.encode().hex()}'" for key, value in properties.items())


def time_text(seconds: float) -> str:
    """A moment as people read it, in UTC."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def state(spark: SparkSession, relation: UpsertKafkaRelation) -> dict[str, str]:
    """What the last run left in the catalog about itself; nothing before the first one."""
    return facts_of(spark, relation.topic_table)


def facts_of(spark: SparkSession, table: UpsertKafkaRelation) -> dict[str, str]:
    """What a table's properties keep for us; nothing of a table that is not there."""
    try:
        properties = spark.sql(f"SHOW TBLPROPERTIES {name(table)}").collect()
    except AnalysisException:
        return {}
    return {row["key"]: bytes.fromhex(row["value"]).decode() for row in properties if row["key"].startswith(OURS)}


def columns(spark: SparkSession, relation: UpsertKafkaRelation) -> StructType:
    """The columns that the view exposes now."""
    return spark.table(name(relation)).schema


def name(relation: UpsertKafkaRelation) -> str:
    return f"{quote_identifier(str(relation.schema))}.{quote_identifier(str(relation.identifier))}"
