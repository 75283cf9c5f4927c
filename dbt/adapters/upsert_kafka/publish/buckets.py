"""Find where rows and a snapshot differ, without a join: keys are hashed into buckets, and the checksums of buckets are compared.

A bucket has about KEYS_PER_BUCKET keys. If its count and checksum are equal in rows and snapshot, then all of its keys are equal.
Only the keys of the other buckets are compared one by one. Leaves that comparison to `difference`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.formats.records import IS_DELETED, KEY_HASH, NULL_KEY, ROW_HASHES
from dbt.adapters.upsert_kafka.publish import digest
from dbt.adapters.upsert_kafka.publish.scan import HASHES
from dbt.adapters.upsert_kafka.publish.snapshot_log import KEYS, TOMBSTONE
from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint
from dbt.adapters.upsert_kafka.spark.metrics import ObservedMetrics

KEYS_PER_BUCKET = 16
"""With few keys per bucket, few unchanged keys are compared because another key of their bucket changed."""
MOST_BUCKETS = 1_000_000
"""Differing buckets are sent to every executor; with more of them, all keys are compared instead."""
BUCKET, CHECKSUMS = "bucket", ("checksum_1", "checksum_2")


@dataclass(frozen=True)
class DifferingBuckets:
    """The buckets in which rows and snapshot differ."""

    frame: DataFrame
    """Their numbers, in the column `bucket`."""
    number: int
    """How many differ."""
    total: int
    """How many there are."""

    def rows(self, encoded: DataFrame, have_null_keys: bool) -> DataFrame:
        """The encoded rows in these buckets. Rows without a key have no bucket and are added, because guards count them."""
        if not have_null_keys:
            return self.entries(encoded)
        return self.entries(encoded.where(~F.col(NULL_KEY))).unionAll(encoded.where(NULL_KEY))

    def entries(self, frame: DataFrame) -> DataFrame:
        """The part of a frame with `key_hash` that is in these buckets."""
        return frame.join(F.broadcast(self.frame), _bucket(self.total) == F.col(BUCKET), "left_semi")


@dataclass(frozen=True)
class LogSums:
    """What a snapshot's log adds up to."""

    live_keys: int
    checksum_1: int
    checksum_2: int

    @classmethod
    def of(cls, found: Mapping[str, int | None]) -> LogSums:
        """From the results of `_log_sums`, which are null for an empty log."""
        return cls(*(found[name] or 0 for name in ("live_keys", *CHECKSUMS)))


def sums_of(log: DataFrame) -> LogSums:
    """The sums of a log, by a pass of its own."""
    [found] = log.agg(*_log_sums()).collect()
    return LogSums.of(found.asDict())


def _log_sums() -> list[Column]:
    is_counted = F.col(KEYS) != TOMBSTONE
    checksums = [F.bit_xor(F.when(is_counted, F.col(name))) for name in HASHES]
    return [F.sum(KEYS).alias("live_keys"), *(sums.alias(name) for name, sums in zip(CHECKSUMS, checksums, strict=True))]


def differing(encoded: DataFrame, log: DataFrame, live_keys: int) -> tuple[DifferingBuckets | None, LogSums]:
    """The buckets in which encoded rows and a snapshot's log differ (None if they are too many), and the log's sums.

    Args:
        log: with `key_hash`.
        live_keys: of the log.
    """
    total = live_keys // KEYS_PER_BUCKET + 1
    # A row to delete counts as no key and has a checksum that nothing cancels, so its bucket always differs.
    of_rows = encoded.where(~F.col(NULL_KEY)).select(
        _bucket(total),
        F.when(F.col(IS_DELETED), 0).otherwise(1).alias(KEYS),
        *(F.when(F.col(IS_DELETED), digest.deleted_hash()).otherwise(F.col(name)) for name in ROW_HASHES),
    )
    # The log's entries are subtracted: the count by its sign, the checksum by XOR.
    of_whole_log = ObservedMetrics()
    log = of_whole_log.observe(log, *_log_sums())
    of_log = log.where(f"{KEYS} <> {TOMBSTONE}").select(_bucket(total), -F.col(KEYS), *HASHES)
    by_bucket = of_rows.unionAll(of_log).toDF(BUCKET, KEYS, *CHECKSUMS).groupBy(BUCKET)
    sums = by_bucket.agg(F.sum(KEYS).alias(KEYS), *(F.bit_xor(name).alias(name) for name in CHECKSUMS))
    metrics = ObservedMetrics()
    different = sums.where(" OR ".join(f"{name} <> 0" for name in (KEYS, *CHECKSUMS))).select(BUCKET)
    frame = checkpoint(metrics.observe(different, F.count(F.lit(1)).alias("number")))
    number = metrics.values["number"]
    part = DifferingBuckets(frame, number, total) if number <= min(MOST_BUCKETS, total // 2) else None
    return part, LogSums.of(of_whole_log.values)


def _bucket(total: int) -> Column:
    return F.pmod(KEY_HASH, F.lit(total))
