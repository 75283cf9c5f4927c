"""What a run left in the topic, key by key: the next run compares its rows with that, and needs not read the topic.

A shortcut for large tables, never a second truth: it counts only while the topic, from its first offset to its last, is as that
run left it. Leaves to `changes` the comparison itself, and what a change adds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

from dbt.adapters.events.logging import AdapterLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka import views
from dbt.adapters.upsert_kafka.held import hold
from dbt.adapters.upsert_kafka.records import DOOMED, KEY, KEY_HASH, NULL_KEY, PARTITION, ROW_HASH, key_hash
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.scan import HASH
from dbt.adapters.upsert_kafka.sinks.failures import SPARK_ERRORS
from dbt.adapters.upsert_kafka.tally import Tally
from dbt.adapters.upsert_kafka.topics import Topic

logger = AdapterLogger("upsert_kafka")

FEWEST_ROWS = 100_000
"""Smaller tables are compared in less time than a snapshot takes."""
KEYS_PER_BUCKET = 16
MOST_BUCKETS = 1_000_000
"""That a comparison is restricted to: they are sent to every executor."""
MOST_ADDITIONS = 50
"""Then a snapshot is made anew: each addition is one more file to open."""
KEYS = "keys"
COLUMNS = f"{KEY} BINARY, {PARTITION} INT, {HASH} BIGINT, {KEYS} INT"
"""Of a log: `keys` is 1 for a value that a key got, -1 for one that it lost, 0 for a key of which only a tombstone is left.
`partition` is null where Kafka's default partitioner puts the key."""
# Hashes and unique keys repeat themselves nowhere.
STORED_AS = {"compression": "zstd", "parquet.enable.dictionary": "false"}
BUCKET, CHECKSUM = "bucket", "checksum"
TOPIC, DIGEST, LIVE, ADDED, PLACED = (f"{views.OURS}{fact}" for fact in ("topic", "digest", "keys", "added", "placed"))


class Digest(NamedTuple):
    """What tells whether two runs had the same rows."""

    rows: int
    nulls: int
    """Rows without a key."""
    checksum: int
    """XOR of all rows' hashes: together with their number no other rows have the same by chance."""


def digest_columns() -> list[Column]:
    """Aggregates over encoded rows that make a digest."""
    checksum = F.bit_xor(F.when(~F.col(NULL_KEY), F.xxhash64(KEY_HASH, ROW_HASH, DOOMED)))
    return [
        F.count(F.lit(1)).alias("rows"),
        F.count_if(F.col(NULL_KEY)).alias("nulls"),
        F.coalesce(checksum, F.lit(0)).alias(CHECKSUM),
    ]


def digest(rows: DataFrame) -> Digest:
    """Of encoded rows."""
    [found] = rows.agg(*digest_columns()).collect()
    return Digest(*found)


@dataclass(frozen=True)
class Snapshot:
    """A topic's keys, as the last run left them."""

    log: DataFrame | None
    """COLUMNS and `key_hash`; None where it is not known in which partitions they are."""
    keys: int
    digest: str
    added: int
    """About how many rows were added since it was made."""

    def is_of(self, rows: Digest) -> bool:
        """Whether the last run's rows were the same; then there is nothing to do. Rows without a key must be looked at."""
        return not rows.nulls and self.digest == json.dumps(rows)

    def latest(self) -> DataFrame | None:
        """The keys as `scan.latest` would find them in the topic."""
        return None if self.log is None else self.latest_of(self.log)

    def latest_of(self, log: DataFrame) -> DataFrame:
        """The same of a part of the log that has all of each key."""
        split = F.lit(False).alias("split")
        if not self.added:
            return log.select(KEY, PARTITION, (F.col(KEYS) > 0).alias("live"), HASH, split)
        live = (F.sum(KEYS) > 0).alias("live")
        # What a key lost cancels out what it got.
        return log.groupBy(KEY).agg(F.max(PARTITION).alias(PARTITION), live, F.bit_xor(HASH).alias(HASH), split)

    def differing(self, rows: DataFrame) -> Part | None:
        """The buckets in which rows and topic are not the same; None if those are too many to be worth it."""
        if self.log is None:
            return None
        buckets = self.keys // KEYS_PER_BUCKET + 1
        of_rows = rows.where(~F.col(NULL_KEY)).select(
            _bucket(buckets),
            F.when(F.col(DOOMED), 0).otherwise(1).alias(KEYS),
            # A row that must go makes its bucket one to look at.
            F.when(F.col(DOOMED), F.xxhash64(F.lit(DOOMED), KEY_HASH)).otherwise(F.xxhash64(KEY_HASH, ROW_HASH)),
        )
        known = self.log.where(f"{KEYS} <> 0").select(_bucket(buckets), -F.col(KEYS), F.xxhash64(KEY_HASH, HASH))
        both = of_rows.unionAll(known).toDF(BUCKET, KEYS, CHECKSUM).groupBy(BUCKET)
        # A checksum stands for few rows, so that 64 bits do not miss a change by chance.
        sums = both.agg(F.sum(KEYS).alias(KEYS), F.bit_xor(CHECKSUM).alias(CHECKSUM))
        seen = Tally()
        found = hold(seen.of(sums.where(f"{KEYS} <> 0 OR {CHECKSUM} <> 0").select(BUCKET), F.count(F.lit(1)).alias("number")))
        number = seen.found["number"]
        return Part(found, number, buckets, self.log, self) if number <= min(MOST_BUCKETS, buckets // 2) else None


@dataclass(frozen=True)
class Part:
    """The buckets in which rows and a snapshot differ."""

    frame: DataFrame
    number: int
    buckets: int
    log: DataFrame
    snapshot: Snapshot

    def of_rows(self, rows: DataFrame, have_nulls: bool) -> DataFrame:
        """The rows in these buckets, and those without a key."""
        if not have_nulls:
            return self._in(rows)
        return self._in(rows.where(~F.col(NULL_KEY))).unionAll(rows.where(NULL_KEY))

    def latest(self) -> DataFrame:
        """The keys in these buckets, as `scan.latest` would find them."""
        return self.snapshot.latest_of(self._in(self.log))

    def _in(self, frame: DataFrame) -> DataFrame:
        return frame.join(F.broadcast(self.frame), _bucket(self.buckets) == F.col(BUCKET), "left_semi")

    @property
    def added(self) -> int:
        """About how many rows the snapshot has more once this is added; a file counts even if it is small."""
        return self.snapshot.added + max(self.number, self.buckets // MOST_ADDITIONS, 1)

    @property
    def can_be_added(self) -> bool:
        """Whether the snapshot stays small."""
        return self.added <= self.buckets


def is_worth_it(topic: Topic) -> bool:
    """Whether a table of this size has snapshots."""
    return sum(topic.end.values()) - sum(topic.first.values()) >= FEWEST_ROWS


def load(spark: SparkSession, relation: UpsertKafkaRelation, topic: Topic, places_by_default: bool) -> Snapshot | None:
    """The last run's snapshot, if nothing has happened to the topic since.

    Args:
        places_by_default: whether new keys go where Kafka's default partitioner puts them.
    """
    facts = views.facts_of(spark, relation.snapshot_table)
    # A table without a digest is an older version's.
    if facts.get(TOPIC) != _fingerprint(topic) or DIGEST not in facts:
        return None
    is_placed = places_by_default and facts[PLACED] == str(True)
    log = spark.table(views.name(relation.snapshot_table)).withColumn(KEY_HASH, key_hash()) if is_placed else None
    return Snapshot(log, int(facts[LIVE]), facts[DIGEST], int(facts[ADDED]))


def save(
    spark: SparkSession, relation: UpsertKafkaRelation, log: DataFrame, keys: int, rows: Digest, topic: Topic, is_placed: bool
) -> None:
    """Keep what the topic holds now, in place of what was kept before.

    Args:
        log: COLUMNS.
        keys: how many of them are live.
        rows: of the run that left them.
        is_placed: whether each key's partition is known; the digest alone still tells a run without changes.
    """
    facts = {**_facts(topic, keys, rows, 0), PLACED: str(is_placed)}
    try:
        drop(spark, relation)
        # Made before it is filled: files of a table that the catalog does not know would be in the way of every later one.
        how = ", ".join(f"'{option}' '{value}'" for option, value in STORED_AS.items())
        spark.sql(f"CREATE TABLE {views.name(relation.snapshot_table)} ({COLUMNS}) USING parquet OPTIONS ({how})")
        if is_placed:
            log.write.insertInto(views.name(relation.snapshot_table))
        views.remember(spark, relation.snapshot_table, facts)
    except SPARK_ERRORS as error:
        # The topic is right all the same, and the next run compares everything.
        logger.debug(f"No snapshot of topic '{topic.name}': {error}")


def add(
    spark: SparkSession, relation: UpsertKafkaRelation, log: DataFrame, keys: int, rows: Digest, topic: Topic, part: Part
) -> None:
    """Add what a run changed to the last snapshot, which differs from its rows in `part`."""
    try:
        # The facts come last: until then the snapshot is of a topic that ended where it does no longer.
        log.coalesce(1).write.insertInto(views.name(relation.snapshot_table))
        views.remember(spark, relation.snapshot_table, _facts(topic, keys, rows, part.added))
    except SPARK_ERRORS as error:
        logger.debug(f"No addition to the snapshot of topic '{topic.name}': {error}")


def _facts(topic: Topic, keys: int, rows: Digest, added: int) -> dict[str, str]:
    return {TOPIC: _fingerprint(topic), DIGEST: json.dumps(rows), LIVE: str(keys), ADDED: str(added)}


def drop(spark: SparkSession, relation: UpsertKafkaRelation) -> None:
    spark.sql(f"DROP TABLE IF EXISTS {views.name(relation.snapshot_table)}")


def _bucket(buckets: int) -> Column:
    return F.pmod(KEY_HASH, F.lit(buckets))


def _fingerprint(topic: Topic) -> str:
    offsets = [sorted(topic.first.items()), sorted(topic.end.items())]
    return json.dumps([topic.name, topic.id, offsets])
