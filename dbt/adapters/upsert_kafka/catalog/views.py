"""What `ref()`, `dbt test` and `dbt docs` read: the table of a topic's raw records and the view over it.

Both read the topic itself, in this process and in any later one. A table that has the name of a helper table without our mark is
never dropped or replaced. Leaves to `formats.records` how bytes become columns and to
`properties` what a run records about the topic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka.catalog import name, properties
from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.formats.records import Records
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS, first_line
from dbt.adapters.upsert_kafka.sql import quote_identifier, quote_literal

RECORD = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
"""The columns of the raw records."""
DERBY_TEXT_LIMIT = 32_700
"""Characters of a view's text that a Derby metastore stores."""

# Inside a partition the offset decides which record is the last. A key is in several partitions only if another writer put it
# there or partitions were added; then `age` decides. Everything needs one exchange and one sort of all records: they are
# distributed by the key's hash, and sorted by the hash first, because hashes are compared faster than keys. The second window has
# no order of its own, so that it does not sort again. Spark removes the columns that a query over it does not use; values too,
# because `has_value` replaces them in conditions. Parsing comes before the second window: Spark would parse a record once more
# for each mention of a column in a WHERE, which it moves below a projection, but not below a window.
_LAST_PER_KEY = """(
  SELECT {columns} FROM (
    SELECT *, max({age}) OVER (PARTITION BY key_hash, key) AS newest FROM (
      SELECT {parsed} FROM (
        SELECT *, lead(offset) OVER (PARTITION BY key_hash, key, topic, partition ORDER BY offset) AS later_offset FROM (
          SELECT *, xxhash64(key) AS key_hash, value IS NOT NULL AS has_value
          FROM {table} WHERE key IS NOT NULL DISTRIBUTE BY key_hash
        )
      ) WHERE later_offset IS NULL
    )
  ) WHERE {age} = newest AND has_value
)"""


@dataclass(frozen=True)
class Comments:
    """The descriptions that the model's persist_docs writes to the catalog."""

    relation: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicView:
    """The table `<alias>__topic` and the view `<alias>` over it."""

    relation: UpsertKafkaRelation
    """The view."""
    existing: UpsertKafkaRelation | None
    """The relation that has the view's name now. A table is dropped: this is dbt's switch of a model from table to topic."""
    reader: Mapping[str, str]
    """Options of Spark's Kafka source, see `whole_topic`."""
    query: str
    """The view's SELECT over `<alias>__topic`."""
    comments: Comments = field(default_factory=Comments)


def prepare(spark: SparkSession, model: str, relation: UpsertKafkaRelation, creates_schema: bool = True) -> dict[str, str]:
    """Check that `create` may create or replace `<alias>__topic`, before anything is written. Creates the table's schema.

    Args:
        creates_schema: False for a run that writes nothing.

    Returns:
        What the last run recorded in the table's properties; empty before the first run.
    """
    table = relation.topic_table
    before = properties.find(spark, table)
    if before is None:
        if creates_schema:
            _create_schema(spark, model, str(table.schema))
        return {}
    if properties.MARK not in before:
        raise GuardError(
            f"model {model}: {table} exists and was not created by dbt-upsert-kafka, which needs this name for the raw records "
            "of the topic. Rename or drop that table. Nothing was written."
        )
    return before


def _create_schema(spark: SparkSession, model: str, schema: str) -> None:
    try:
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {quote_identifier(schema)}")
    except SPARK_ERRORS as error:
        # Some catalogs refuse the statement to users without the right to create schemas, also if the schema exists.
        if not spark.catalog.databaseExists(schema):
            raise GuardError(
                f"model {model}: the schema {schema}, which is needed for the raw records of the topic, can't be created. Create "
                f"this schema, or grant the right to create schemas. Nothing was written. Spark reports: {first_line(error)}"
            ) from error


def create(spark: SparkSession, view: TopicView, before: Mapping[str, str], facts: Mapping[str, str] | None = None) -> None:
    """Create table and view, unless they exist with the same definition and the same facts.

    Args:
        before: the table's properties now, see `prepare`.
        facts: the table's new properties.
    """
    table_name, view_name = name(view.relation.topic_table), name(view.relation)
    wanted = {**_own_properties(view), **(facts or {})}
    if view.existing is not None and view.existing.is_view and wanted.items() <= before.items():
        return
    if view.existing is not None and not view.existing.is_view:
        spark.sql(f"DROP TABLE IF EXISTS {view_name}")
    if properties.MARK in before:
        spark.sql(f"DROP TABLE IF EXISTS {table_name}")
    spark.sql(f"{_create_table(view)} TBLPROPERTIES ({properties.listed(wanted)})")
    spark.sql(f"CREATE OR REPLACE VIEW {view_name}{_comment_clauses(spark, view.query, view.comments)} AS {view.query}")
    if view.existing is not None and view.existing.is_view and properties.MARK not in before:
        _drop_former_helper_tables(spark, view.relation)


def is_created(view: TopicView, before: Mapping[str, str]) -> bool:
    """Whether table and view exist with this definition.

    Args:
        before: the table's properties now, see `prepare`.
    """
    return view.existing is not None and view.existing.is_view and _own_properties(view).items() <= before.items()


def _create_table(view: TopicView) -> str:
    options = ", ".join(f"{quote_literal(option)} {quote_literal(value)}" for option, value in sorted(view.reader.items()))
    return f"CREATE TABLE {name(view.relation.topic_table)} USING kafka OPTIONS ({options})"


def _own_properties(view: TopicView) -> dict[str, str]:
    """The mark of the table, and the hash of both definitions."""
    comments = view.comments
    definition = (
        _create_table(view) + f"{name(view.relation)} {comments.relation} {sorted(comments.columns.items())} {view.query}"
    )
    return {**properties.mark(view.relation), properties.FINGERPRINT: hashlib.sha256(definition.encode()).hexdigest()}


def _drop_former_helper_tables(spark: SparkSession, relation: UpsertKafkaRelation) -> None:
    """Drop the helper tables that an earlier version created in the user's schema. They have properties of ours, but no mark."""
    for table in relation.former_helper_tables:
        found = properties.read(spark, table)
        if found and properties.MARK not in found:
            spark.sql(f"DROP TABLE IF EXISTS {name(table)}")


def _comment_clauses(spark: SparkSession, query: str, comments: Comments) -> str:
    of_columns = ""
    if comments.columns:
        by_name = {column.lower(): text for column, text in comments.columns.items()}
        texts = {column: by_name.get(column.lower()) for column in spark.sql(query).columns}
        listed = (quote_identifier(c) + (f" COMMENT {quote_literal(text)}" if text else "") for c, text in texts.items())
        of_columns = f" ({', '.join(listed)})"
    return of_columns + (f" COMMENT {quote_literal(comments.relation)}" if comments.relation else "")


def length_problem(spark: SparkSession, query: str) -> str | None:
    """Why the catalog can't store a view with this query, or None. Checked before the first write to the topic."""
    catalog = spark.conf.get("spark.hadoop.javax.jdo.option.ConnectionURL", "") or ""
    if not catalog.startswith("jdbc:derby") or len(query) <= DERBY_TEXT_LIMIT:
        return None
    return (
        f"the query of its view has {len(query)} characters, the Derby database that your profile names stores at most "
        f"{DERBY_TEXT_LIMIT}. Select fewer columns, put some of them into a struct, or remove "
        "spark.hadoop.javax.jdo.option.ConnectionURL from the profile to use the project's own catalog."
    )


def last_per_key(relation: UpsertKafkaRelation, records: Records, skips: bool) -> str:
    """The view's query for a keyed topic: the last record of each key, decoded; see `Records.decode`."""
    parsed = last_records(name(relation.topic_table), values_first=True, parsed=records.parsed())
    return records.decode_parsed(parsed, skips)


def last_records(table: str, values_first: bool, parsed: Mapping[str, str] | None = None) -> str:
    """A subquery over the raw records `table`: the last record of each key, without tombstones.

    Args:
        values_first: in the topic of a model, a value counts before a tombstone in another partition, as in `publish.scan`.
            In the topic of another writer the later of the two counts.
        parsed: further columns, expressions over the raw records that do not fail.
    """
    age = "has_value, timestamp" if values_first else "timestamp, has_value"
    more = parsed or {}
    return _LAST_PER_KEY.format(
        table=table,
        age=f"struct({age}, topic, partition)",
        columns=", ".join([*RECORD, *more]),
        parsed=", ".join(["*", *(f"{expression} AS {column}" for column, expression in more.items())]),
    )


def whole_topic(topic: str, kafka: KafkaSettings) -> dict[str, str]:
    """Reader options for all committed records that a sink's topic has when it is read."""
    return {**kafka.committed().catalog(), "subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}


def columns(spark: SparkSession, relation: UpsertKafkaRelation) -> StructType:
    """The columns of the view as it is now."""
    return spark.table(name(relation)).schema
