"""Find where rows and a snapshot differ, without a join: keys are hashed into buckets, and the checksums of buckets are compared.

A bucket has about KEYS_PER_BUCKET keys. If its count and checksum are equal in rows and snapshot, then all of its keys are equal.
Only the keys of the other buckets are compared one by one. Leaves that comparison to `difference`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.formats.records import IS_DELETED, KEY_HASH, NULL_KEY, PARTITION, ROW_HASHES
from dbt.adapters.upsert_kafka.publish.scan import HASHES
from dbt.adapters.upsert_kafka.publish.snapshot_log import KEYS, TOMBSTONE
from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint
from dbt.adapters.upsert_kafka.spark.metrics import ObservedMetrics

KEYS_PER_BUCKET = 16
"""At most, on average. With few keys per bucket, few unchanged keys are compared because another key of their bucket changed."""
MOST_BUCKETS = 1_000_000
"""Differing buckets are sent to every executor; with more of them, all keys are compared instead."""
DELETED_KEYS = 1 << 40
"""How many keys a row to delete counts for."""
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
    elsewhere: int
    """Entries of keys in another partition than that of Kafka's default partitioner."""

    @classmethod
    def of(cls, found: Mapping[str, int | None]) -> LogSums:
        """From the results of `_log_sums`, which are null for an empty log."""
        return cls(*(found[name] or 0 for name in ("live_keys", *CHECKSUMS, "elsewhere")))


class ObservedSums:
    """The sums of a log, collected by the query that reads the log for something else."""

    def __init__(self) -> None:
        self._metrics = ObservedMetrics()

    def observe(self, log: DataFrame) -> DataFrame:
        """The log to read, all of it."""
        return self._metrics.observe(log, *_log_sums())

    @cached_property
    def values(self) -> LogSums:
        return LogSums.of(self._metrics.values)


def sums_of(log: DataFrame) -> LogSums:
    """The sums of a log, by a pass of its own."""
    [found] = log.agg(*_log_sums()).collect()
    return LogSums.of(found.asDict())


def _log_sums() -> list[Column]:
    checksums = (f"bit_xor(CASE WHEN {KEYS} <> {TOMBSTONE} THEN {name} END)" for name in HASHES)
    sums = {"live_keys": f"sum({KEYS})", **dict(zip(CHECKSUMS, checksums, strict=True)), "elsewhere": f"count({PARTITION})"}
    return [F.expr(f"{aggregate} AS {name}") for name, aggregate in sums.items()]


def total_of(live_keys: int) -> int:
    """The number of buckets for so many keys: a power of two, so that Spark finds the code that it compiled for the last run.

    >>> [total_of(keys) for keys in (0, 15, 16, 1_000_000, 1_010_000)]
    [1, 1, 2, 65536, 65536]
    """
    return 1 << (live_keys // KEYS_PER_BUCKET).bit_length()


def differing(encoded: DataFrame, log: DataFrame, live_keys: int) -> tuple[DifferingBuckets | None, LogSums]:
    """The buckets in which encoded rows and a snapshot's log differ (None if they are too many), and the log's sums.

    Args:
        log: with `key_hash`.
        live_keys: of the log.
    """
    total = total_of(live_keys)
    # The bucket of a row to delete always differs: no number of keys in the log cancels DELETED_KEYS.
    of_rows = encoded.where(~F.col(NULL_KEY)).select(
        _bucket(total),
        F.expr(f"if({IS_DELETED}, {DELETED_KEYS}L, 1L) AS {KEYS}"),
        *ROW_HASHES,
    )
    # The log's entries are subtracted: the count by its sign, the checksum by XOR.
    of_whole_log = ObservedSums()
    of_log = of_whole_log.observe(log).where(f"{KEYS} <> {TOMBSTONE}").select(_bucket(total), -F.col(KEYS), *HASHES)
    by_bucket = of_rows.unionAll(of_log).toDF(BUCKET, KEYS, *CHECKSUMS).groupBy(BUCKET)
    sums = by_bucket.agg(F.sum(KEYS).alias(KEYS), *(F.bit_xor(name).alias(name) for name in CHECKSUMS))
    metrics = ObservedMetrics()
    different = sums.where(" OR ".join(f"{name} <> 0" for name in (KEYS, *CHECKSUMS))).select(BUCKET)
    frame = checkpoint(metrics.observe(different, F.count(F.lit(1)).alias("number")))
    number = metrics.values["number"]
    part = DifferingBuckets(frame, number, total) if number <= min(MOST_BUCKETS, total // 2) else None
    return part, of_whole_log.values


def _bucket(total: int) -> Column:
    return F.pmod(KEY_HASH, F.lit(total))
