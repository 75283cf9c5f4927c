"""What a run left in the topic, as checksums of small buckets of keys: the next run looks only at the buckets that differ.

A shortcut for large tables, never a second truth: it counts only while the topic, from its first offset to its last, is as that
run left it. Leaves to `changes` the comparison itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

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
MOST_ADDITIONS = 50
"""Then a snapshot is made anew: each addition is one more file to open."""
BUCKET, KEYS, CHECKSUM = "bucket", "keys", "checksum"
TOPIC, BUCKETS, ROWS, ADDED = (f"{views.OURS}{fact}" for fact in ("topic", "buckets", "keys", "added"))


@dataclass(frozen=True)
class Snapshot:
    """A topic's live keys, as the last run left them."""

    frame: DataFrame
    """`bucket, keys, checksum`: a bucket may stand there more than once, and the sum and the XOR of its rows count."""
    buckets: int
    keys: int
    added: int
    """About how many rows were added since it was made."""

    def differing(self, rows: DataFrame) -> Part | None:
        """The buckets in which rows and topic are not the same; None if those are too many to be worth it."""
        known = self.frame.select(BUCKET, (-F.col(KEYS)).alias(KEYS), CHECKSUM)
        both = _by_bucket(_pairs(rows, self.buckets).unionAll(known))
        found = hold(both.where(f"{KEYS} <> 0 OR {CHECKSUM} <> 0"))
        number = found.count()
        return Part(found, number, self) if number <= min(MOST_BUCKETS, self.buckets // 2) else None


@dataclass(frozen=True)
class Part:
    """The buckets in which rows and a snapshot differ."""

    frame: DataFrame
    """`bucket, keys, checksum`: what must be added to the snapshot to make it one of the rows."""
    number: int
    snapshot: Snapshot

    def of_rows(self, rows: DataFrame) -> DataFrame:
        """The rows in these buckets, and those that are in none."""
        rest = rows.where(F.col(NULL_KEY) | F.col(DOOMED))
        return self._in(_live(rows)).unionAll(rest)

    def of_topic(self, records: DataFrame) -> DataFrame:
        return self._in(records)

    def _in(self, frame: DataFrame) -> DataFrame:
        buckets = F.broadcast(self.frame.select(BUCKET))
        return frame.withColumn(BUCKET, _bucket(self.snapshot.buckets)).join(buckets, BUCKET, "left_semi").drop(BUCKET)

    @property
    def added(self) -> int:
        """About how many rows the snapshot has more once this is added; a file counts even if it is small."""
        return self.snapshot.added + max(self.number, self.snapshot.buckets // MOST_ADDITIONS)

    def can_be_added(self, keys: int) -> bool:
        """Whether the snapshot stays small, and its buckets about as large as they should be for so many keys."""
        buckets = self.snapshot.buckets
        return self.added <= buckets and keys // 2 <= buckets * KEYS_PER_BUCKET <= 2 * (keys + KEYS_PER_BUCKET)


def is_worth_it(topic: Topic) -> bool:
    """Whether a table of this size has snapshots."""
    return sum(topic.end.values()) - sum(topic.first.values()) >= FEWEST_ROWS


def load(spark: SparkSession, relation: UpsertKafkaRelation, topic: Topic) -> Snapshot | None:
    """The last run's snapshot, if nothing has happened to the topic since."""
    facts = views.facts_of(spark, relation.snapshot_table)
    if facts.get(TOPIC) != _fingerprint(topic):
        return None
    rows = spark.table(views.name(relation.snapshot_table))
    return Snapshot(rows, int(facts[BUCKETS]), int(facts[ROWS]), int(facts.get(ADDED, 0)))


def save(
    spark: SparkSession, relation: UpsertKafkaRelation, rows: DataFrame, keys: int, topic: Topic, part: Part | None = None
) -> None:
    """Keep what the topic holds now: exactly these rows.

    Args:
        part: in what they differ from the last snapshot, if that counted.
    """
    try:
        if part is not None and part.can_be_added(keys):
            # The facts come last: until then the snapshot is of a topic that ended where it does no longer.
            part.frame.coalesce(1).write.insertInto(views.name(relation.snapshot_table))
            views.remember(spark, relation.snapshot_table, _facts(topic, part.snapshot.buckets, keys, part.added))
            return
        buckets = keys // KEYS_PER_BUCKET + 1
        drop(spark, relation)
        views.store(spark, relation.snapshot_table, _by_bucket(_pairs(rows, buckets)), _facts(topic, buckets, keys, 0))
    except SPARK_ERRORS as error:
        # The topic is right all the same, and the next run compares everything.
        logger.debug(f"No snapshot of topic '{topic.name}': {error}")


def _facts(topic: Topic, buckets: int, keys: int, added: int) -> dict[str, str]:
    return {TOPIC: _fingerprint(topic), BUCKETS: str(buckets), ROWS: str(keys), ADDED: str(added)}


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
