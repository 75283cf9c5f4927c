"""Snapshots of large topics: the table `<alias>__snapshot` has what the last run left in the topic, key by key.

The next run compares its rows with the snapshot instead of reading the topic. A snapshot is a cache: it is used only while the
topic's id and offsets are those that the run left, and only if it adds up to the digest in the topic's state record.
Leaves to `snapshot_log` what is in the table and to `compare` how it is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from dbt.adapters.events.logging import AdapterLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.catalog import name, properties
from dbt.adapters.upsert_kafka.dbt_warnings import warn_after_write
from dbt.adapters.upsert_kafka.formats.records import KEY_HASH, key_hash
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.publish import buckets, snapshot_log
from dbt.adapters.upsert_kafka.publish.buckets import DifferingBuckets, LogSums, ObservedSums
from dbt.adapters.upsert_kafka.publish.changes import Changes
from dbt.adapters.upsert_kafka.publish.digest import Digest
from dbt.adapters.upsert_kafka.publish.scan import IS_SPLIT
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS
from dbt.adapters.upsert_kafka.spark.metrics import ObservedMetrics

logger = AdapterLogger("upsert_kafka")

FEWEST_ROWS = 100_000
"""Comparing a smaller table with the topic takes less time than saving a snapshot."""
ONE_TASK = 250_000
"""Rows and entries of a snapshot that are compared in one task: distributing fewer takes longer than comparing them."""
MOST_ADDITIONS = 50
"""After so many additions a snapshot is saved anew: each addition is one more file to open."""
# Hashes and unique keys have no repeated values that a dictionary could encode.
STORED_AS = {"compression": "zstd", "parquet.enable.dictionary": "false"}
TOPIC, DIGEST, LIVE, ADDED = (f"{properties.OURS}{fact}" for fact in ("topic", "seeded_digest", "keys", "added"))


@dataclass(frozen=True)
class Metadata:
    """What the table's properties say about the snapshot."""

    topic: str
    """Name, id and offsets of the topic, see `fingerprint`."""
    digest: Digest
    """Of the rows of the run that saved it."""
    keys: int
    """Live keys of the topic."""
    added: int = 0
    """About how many entries were added since the table was saved as a whole."""

    def as_properties(self) -> dict[str, str]:
        return {
            TOPIC: self.topic,
            DIGEST: self.digest.text,
            LIVE: str(self.keys),
            ADDED: str(self.added),
        }

    @classmethod
    def of(cls, table_properties: Mapping[str, str]) -> Metadata | None:
        """None if there is no table, or its snapshot is unfinished or an older version's."""
        if TOPIC not in table_properties or DIGEST not in table_properties:
            return None
        return cls(
            topic=table_properties[TOPIC],
            digest=Digest.of(table_properties[DIGEST]),
            keys=int(table_properties[LIVE]),
            added=int(table_properties[ADDED]),
        )


@dataclass(frozen=True)
class Snapshot:
    """The keys of a topic as the last run left them."""

    metadata: Metadata
    log: DataFrame
    """`snapshot_log.COLUMNS` and `key_hash`."""
    is_stored: bool = True
    """Whether it is in the table."""

    @property
    def keys(self) -> int:
        return self.metadata.keys

    @property
    def added(self) -> int:
        return self.metadata.added

    def latest(self, part: DifferingBuckets | None = None) -> DataFrame:
        """The keys as `scan.latest` would find them in the topic: all, or those in some buckets."""
        return snapshot_log.latest(self.log if part is None else part.entries(self.log), has_additions=self.added > 0)

    def fits_into_one_task(self, rows: int) -> bool:
        """Whether the snapshot and so many rows are compared in one task, and the changes can be added to the log."""
        return rows + self.keys + self.added <= ONE_TASK and self.added_with(1) <= buckets.total_of(self.keys)

    def in_one_task(self, compare: Callable[[DataFrame], Changes]) -> tuple[Changes | None, LogSums | None]:
        """Compare with all keys, in one task.

        Args:
            compare: with keys as `latest` returns them, all of which it reads.

        Returns:
            The changes, and the sums of the snapshot if it adds up to what the state record says.
        """
        sums = ObservedSums()
        log = sums.observe(self.log.coalesce(1))
        try:
            changes = compare(snapshot_log.latest(log, has_additions=self.added > 0))
            return changes, sums.values if self._adds_up(sums.values) else None
        except SPARK_ERRORS as error:
            self._log_damage(error)
            return None, None

    def differing(self, encoded: DataFrame) -> tuple[DifferingBuckets | None, LogSums | None]:
        """The buckets in which the rows differ, if comparing these is worth it and their changes can be added to the log.

        Returns:
            The buckets, and the sums of the snapshot if it adds up to what the state record says.
        """
        try:
            found, sums = buckets.differing(encoded, self.log, self.keys)
        except SPARK_ERRORS as error:
            self._log_damage(error)
            return None, None
        part = found if found is not None and self.added_with(found.number) <= found.total else None
        return part, sums if self._adds_up(sums) else None

    def is_verified(self) -> bool:
        """Whether it adds up to what the state record says; needs a pass over it."""
        try:
            return self._adds_up(buckets.sums_of(self.log))
        except SPARK_ERRORS as error:
            self._log_damage(error)
            return False

    def _adds_up(self, sums: LogSums) -> bool:
        digest = self.metadata.digest
        if (sums.live_keys, sums.checksum_1, sums.checksum_2) == (self.keys, digest.live_1, digest.live_2):
            return True
        self._log_damage(f"it adds up to {sums}")
        return False

    def _log_damage(self, why: object) -> None:
        """A snapshot is only a cache: files that are missing or damaged cost time, and nothing else."""
        logger.debug(f"The snapshot of topic {self.metadata.topic} is damaged, the topic is read instead: {why}")

    def added_with(self, changes: int) -> int:
        """`Metadata.added` after about so many changes are added; a small addition still counts as one file."""
        return self.added + max(changes, buckets.total_of(self.keys) // MOST_ADDITIONS, 1)


def is_worth_it(topic: Topic) -> bool:
    """Whether the topic is large enough for a snapshot."""
    return sum(topic.end.values()) - sum(topic.first.values()) >= FEWEST_ROWS


def can_be_stored(spark: SparkSession) -> bool:
    """Whether all executors and later runs reach the warehouse, in which a snapshot's files are."""
    return _is_reachable(str(spark.conf.get("spark.master")), str(spark.conf.get("spark.sql.warehouse.dir")))


def _is_reachable(master: str, warehouse: str) -> bool:
    """Executors on other machines would each write the files of a `file:` warehouse to a disk of their own.

    >>> _is_reachable("local[*]", "file:/srv/warehouse"), _is_reachable("spark://host:7077", "file:/srv/warehouse")
    (True, False)
    >>> _is_reachable("yarn", "hdfs://namenode/warehouse"), _is_reachable("yarn", "spark-warehouse")
    (True, False)
    """
    return master.startswith("local") or urlsplit(warehouse).scheme not in ("", "file")


def load(
    spark: SparkSession, relation: UpsertKafkaRelation, topic: Topic, digest: str, places_by_default: bool
) -> Snapshot | None:
    """The last run's snapshot, if the topic has not changed since. Its content is not verified yet.

    Args:
        digest: of the topic's rows, from its state record.
        places_by_default: whether Kafka's default partitioner places new keys: a snapshot has no partitions for these.
    """
    metadata = Metadata.of(properties.read(spark, relation.snapshot_table)) if places_by_default else None
    if metadata is None or metadata.topic != fingerprint(topic) or metadata.digest != Digest.of(digest):
        return None
    return Snapshot(metadata, spark.table(name(relation.snapshot_table)).withColumn(KEY_HASH, key_hash()))


def of_topic(latest: DataFrame) -> tuple[Snapshot, int]:
    """A snapshot of what was read from a topic, which is in no table yet, and how many of its keys are split.

    Args:
        latest: see `scan.latest`. It is computed once.
    """
    sums, splits = ObservedSums(), ObservedMetrics()
    counted = splits.observe(latest, F.count_if(IS_SPLIT).alias("split"))
    log = checkpoint(sums.observe(snapshot_log.of_latest(counted)))
    found = sums.values
    digest = Digest(0, 0, found.checksum_1, found.checksum_2, 0)
    snapshot = Snapshot(Metadata("", digest, found.live_keys), log.withColumn(KEY_HASH, key_hash()), is_stored=False)
    return snapshot, splits.values["split"]


def save(spark: SparkSession, relation: UpsertKafkaRelation, log: DataFrame, metadata: Metadata) -> None:
    """Replace the snapshot.

    Args:
        log: of the whole topic, see `snapshot_log.of_topic`.
    """
    table = name(relation.snapshot_table)
    try:
        if not drop(spark, relation):
            warn_after_write(
                f"{relation}: {relation.snapshot_table} exists and was not created by dbt-upsert-kafka, which needs this name "
                "for a snapshot. No snapshot is saved, so the next run reads the topic. Rename or drop that table."
            )
            return
        # Created before it is filled: files of a table that is not in the catalog would make every later CREATE fail.
        how = ", ".join(f"'{option}' '{value}'" for option, value in STORED_AS.items())
        mark = properties.listed(properties.mark(relation))
        spark.sql(f"CREATE TABLE {table} ({snapshot_log.COLUMNS}) USING parquet OPTIONS ({how}) TBLPROPERTIES ({mark})")
        log.write.insertInto(table)
        properties.save(spark, relation.snapshot_table, metadata.as_properties())
    except SPARK_ERRORS as error:
        # The topic is right without a snapshot, and the next run compares with the topic.
        logger.debug(f"No snapshot was saved for {relation}: {error}")


def add(spark: SparkSession, relation: UpsertKafkaRelation, log: DataFrame, metadata: Metadata) -> None:
    """Add a run's changes to the snapshot.

    Args:
        log: see `snapshot_log.of_changes`.
    """
    try:
        # The properties are set last: until then the fingerprint is not the topic's, and the snapshot is not used.
        log.coalesce(1).write.insertInto(name(relation.snapshot_table))
        properties.save(spark, relation.snapshot_table, metadata.as_properties())
    except SPARK_ERRORS as error:
        logger.debug(f"The changes were not added to the snapshot of {relation}: {error}")


def drop(spark: SparkSession, relation: UpsertKafkaRelation) -> bool:
    """Drop the relation's snapshot, if it has one.

    Returns:
        Whether the snapshot's name is free now. It is not if another relation has it; that relation is left as it is.
    """
    found = properties.find(spark, relation.snapshot_table)
    if found is not None and properties.MARK not in found:
        return False
    if found is not None:
        spark.sql(f"DROP TABLE IF EXISTS {name(relation.snapshot_table)}")
    return True


def fingerprint(topic: Topic) -> str:
    """What changes if anybody writes to the topic, deletes records from it, or creates it anew."""
    offsets = [sorted(topic.first.items()), sorted(topic.end.items())]
    return json.dumps([topic.name, topic.id, offsets])
