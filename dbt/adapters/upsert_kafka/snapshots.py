"""What a run left in the topic, as checksums of small buckets of keys: the next run looks only at the buckets that differ.

A shortcut for large tables, never a second truth: it counts only while the topic, from its first offset to its last, is as that
run left it. Leaves to `changes` the comparison itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from dbt.adapters.events.logging import AdapterLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka import views
from dbt.adapters.upsert_kafka.held import hold
from dbt.adapters.upsert_kafka.records import DOOMED, KEY, NULL_KEY, VALUE
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.sinks.failures import SPARK_ERRORS
from dbt.adapters.upsert_kafka.topics import Topic

logger = AdapterLogger("upsert_kafka")

FEWEST_ROWS = 100_000
"""Smaller tables are compared in less time than a snapshot takes."""
KEYS_PER_BUCKET = 8
MOST_BUCKETS = 1_000_000
"""That a comparison is restricted to: they are sent to every executor."""
BUCKET, KEYS, CHECKSUM = "bucket", "keys", "checksum"
TOPIC, BUCKETS, ROWS = f"{views.OURS}topic", f"{views.OURS}buckets", f"{views.OURS}keys"


@dataclass(frozen=True)
class Sums:
    """Rows as checksums of their buckets."""

    frame: DataFrame
    """`bucket, keys, checksum`."""
    buckets: int
    replaces: bool = False
    """Whether they are made of the snapshot that they replace."""

    def fit(self, keys: int) -> bool:
        """Whether the buckets have about the size that they should have."""
        return keys // 2 <= self.buckets * KEYS_PER_BUCKET <= 2 * (keys + KEYS_PER_BUCKET)


@dataclass(frozen=True)
class Snapshot:
    """A topic's live keys, as the last run left them."""

    sums: Sums
    keys: int

    def differing(self, rows: DataFrame) -> Part | None:
        """The buckets in which rows and topic are not the same; None if those are too many to be worth it."""
        buckets = self.sums.buckets
        known = self.sums.frame.select(BUCKET, (-F.col(KEYS)).alias(KEYS), CHECKSUM)
        both = _by_bucket(_pairs(rows, buckets).unionAll(known))
        found = hold(both.where(f"{KEYS} <> 0 OR {CHECKSUM} <> 0").select(BUCKET))
        number = found.count()
        return Part(found, number, buckets) if number <= min(MOST_BUCKETS, buckets // 2) else None

    def updated(self, part: Part, rows: DataFrame) -> Sums:
        """The checksums of a table that differs only in that part, of which these are all rows; not yet computed."""
        others = self.sums.frame.join(F.broadcast(part.frame), BUCKET, "left_anti")
        return replace(self.sums, frame=others.unionAll(summed(rows, part.buckets).frame), replaces=True)


@dataclass(frozen=True)
class Part:
    """Some buckets."""

    frame: DataFrame
    number: int
    buckets: int

    def of_rows(self, rows: DataFrame) -> DataFrame:
        """The rows in these buckets, and those that are in none."""
        rest = rows.where(F.col(NULL_KEY) | F.col(DOOMED))
        return self._in(_live(rows)).unionAll(rest)

    def of_topic(self, records: DataFrame) -> DataFrame:
        return self._in(records)

    def _in(self, frame: DataFrame) -> DataFrame:
        return frame.withColumn(BUCKET, _bucket(self.buckets)).join(F.broadcast(self.frame), BUCKET, "left_semi").drop(BUCKET)


def is_worth_it(topic: Topic) -> bool:
    """Whether a table of this size has snapshots."""
    return sum(topic.end.values()) - sum(topic.first.values()) >= FEWEST_ROWS


def load(spark: SparkSession, relation: UpsertKafkaRelation, topic: Topic) -> Snapshot | None:
    """The last run's snapshot, if nothing has happened to the topic since."""
    facts = views.facts_of(spark, relation.snapshot_table)
    if facts.get(TOPIC) != _fingerprint(topic):
        return None
    sums = Sums(spark.table(views.name(relation.snapshot_table)), int(facts[BUCKETS]))
    return Snapshot(sums, int(facts[ROWS]))


def buckets_for(keys: int) -> int:
    return keys // KEYS_PER_BUCKET + 1


def summed(rows: DataFrame, buckets: int) -> Sums:
    """The rows' checksums; not yet computed."""
    return Sums(_by_bucket(_pairs(rows, buckets)), buckets)


def save(spark: SparkSession, relation: UpsertKafkaRelation, sums: Sums, keys: int, topic: Topic) -> None:
    """Keep what the topic holds now: exactly the rows of these sums."""
    facts = {TOPIC: _fingerprint(topic), BUCKETS: str(sums.buckets), ROWS: str(keys)}
    try:
        frame = hold(sums.frame) if sums.replaces else sums.frame
        drop(spark, relation)
        views.store(spark, relation.snapshot_table, frame, facts)
    except SPARK_ERRORS as error:
        # The topic is right all the same, and the next run compares everything.
        logger.debug(f"No snapshot of topic '{topic.name}': {error}")


def drop(spark: SparkSession, relation: UpsertKafkaRelation) -> None:
    spark.sql(f"DROP TABLE IF EXISTS {views.name(relation.snapshot_table)}")


def _live(rows: DataFrame) -> DataFrame:
    return rows.where(~F.col(NULL_KEY) & ~F.col(DOOMED))


def _bucket(buckets: int) -> Column:
    return F.pmod(F.xxhash64(KEY), F.lit(buckets)).alias(BUCKET)


def _pairs(rows: DataFrame, buckets: int) -> DataFrame:
    # A checksum stands for few rows, so that 64 bits do not miss a change by chance.
    return _live(rows).select(_bucket(buckets), F.lit(1).cast("long").alias(KEYS), F.xxhash64(KEY, VALUE).alias(CHECKSUM))


def _by_bucket(pairs: DataFrame) -> DataFrame:
    return pairs.groupBy(BUCKET).agg(F.sum(KEYS).alias(KEYS), F.bit_xor(CHECKSUM).alias(CHECKSUM))


def _fingerprint(topic: Topic) -> str:
    offsets = [sorted(topic.first.items()), sorted(topic.end.items())]
    return json.dumps([topic.name, topic.id, offsets])
