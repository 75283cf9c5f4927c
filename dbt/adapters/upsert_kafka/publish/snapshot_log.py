"""The content of a snapshot: a log of which value each key of the topic got and lost.

An entry is `key, partition, hash_1, hash_2, keys`. `keys` is by how much the entry changes the number of live keys: +1 if the
key got the value with these hashes, -1 if it lost that value, 0 if the topic has only a tombstone of the key. Two
entries that differ only in the sign of `keys` cancel each other out. So a run adds entries for its changes and rewrites nothing.
To read the log, add up per key:

- the sum of `keys` is 1 for a live key and 0 for a key that is not live;
- the XOR of `hash_1` is the first hash of the current value, and so on, because the XOR of a number with itself is 0.

For example, key `a` gets value 7, then value 5; key `b` gets value 9 and is deleted; of `c` there was only a tombstone:

>>> from functools import reduce
>>> from operator import xor
>>> log = [("a", 7, +1), ("b", 9, +1), ("c", 0, 0)]  # saved by the first run
>>> log += [("a", 7, -1), ("a", 5, +1), ("b", 9, -1)]  # added by the second run
>>> {k: (sum(n for key, _, n in log if key == k), reduce(xor, [h for key, h, _ in log if key == k])) for k in "abc"}
{'a': (1, 5), 'b': (0, 0), 'c': (0, 0)}

Leaves to `snapshots` where a log is stored.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.formats.records import KEY, PARTITION, ROW_HASHES
from dbt.adapters.upsert_kafka.publish.changes import Changes
from dbt.adapters.upsert_kafka.publish.kinds import KIND, Kind
from dbt.adapters.upsert_kafka.publish.scan import HASHES, IS_LIVE, IS_SPLIT

KEYS = "keys"
COLUMNS = f"{KEY} BINARY, {PARTITION} INT, {HASHES[0]} BIGINT, {HASHES[1]} BIGINT, {KEYS} INT"
"""`partition` is null if the key is where Kafka's default partitioner places it. The hashes are null if `keys` is 0."""

GOT, LOST, TOMBSTONE = 1, -1, 0


def of_topic(changes: Changes) -> DataFrame:
    """A new log: one entry for each key that the topic has after the run.

    Args:
        changes: of a first load, or with `all_keys`.
    """
    if changes.all_keys is None:
        inserted = changes.frame.where(F.col(KIND) == Kind.INSERT)
        return inserted.select(KEY, PARTITION, *_of_row(), F.lit(GOT).alias(KEYS))
    is_live = F.col(KIND).isin(Kind.INSERT, Kind.UPDATE, Kind.REPUBLISH, Kind.UNCHANGED)
    return changes.all_keys.where(F.col(KIND) != Kind.NULL).select(
        KEY,
        PARTITION,
        *(F.when(is_live, F.col(of_row)).alias(name) for of_row, name in zip(ROW_HASHES, HASHES, strict=True)),
        F.when(is_live, GOT).otherwise(TOMBSTONE).alias(KEYS),
    )


def of_latest(latest: DataFrame) -> DataFrame:
    """A new log: one entry for each key of a topic.

    Args:
        latest: see `scan.latest`.
    """
    of_value = [F.when(F.col(IS_LIVE), F.col(name)).alias(name) for name in HASHES]
    return latest.select(KEY, PARTITION, *of_value, F.when(F.col(IS_LIVE), GOT).otherwise(TOMBSTONE).alias(KEYS))


def of_changes(changes: Changes) -> DataFrame:
    """The entries to add to the log of the topic before the run: none for keys that stay as they are."""
    lost = F.struct(*HASHES, F.lit(LOST).alias(KEYS))
    got = F.struct(*_of_row(), F.lit(GOT).alias(KEYS))
    entries = (
        F.when(F.col(KIND) == Kind.INSERT, F.array(got))
        .when(F.col(KIND) == Kind.DELETE, F.array(lost))
        .when(F.col(KIND) == Kind.UPDATE, F.array(lost, got))
    )
    return changes.frame.select(KEY, PARTITION, F.explode(entries).alias("entry")).select(KEY, PARTITION, "entry.*")


def with_changes(log: DataFrame, changes: Changes) -> DataFrame:
    """The log of the topic after the run, from that of the topic before the run."""
    stored = log.select(KEY, PARTITION, *HASHES, KEYS)
    return stored.unionByName(of_changes(changes)) if changes.to_write else stored


def latest(log: DataFrame, has_additions: bool) -> DataFrame:
    """The keys of the log as `scan.latest` would find them in the topic: `key, partition, live, hash_1, hash_2, split`.

    Args:
        log: with all entries of each of its keys.
        has_additions: False if every key has one entry; then nothing is added up, which saves a shuffle.
    """
    is_split = F.lit(False).alias(IS_SPLIT)
    if not has_additions:
        return log.select(KEY, PARTITION, (F.col(KEYS) > 0).alias(IS_LIVE), *HASHES, is_split)
    is_live = (F.sum(KEYS) > 0).alias(IS_LIVE)
    of_value = [F.bit_xor(name).alias(name) for name in HASHES]
    return log.groupBy(KEY).agg(F.max(PARTITION).alias(PARTITION), is_live, *of_value, is_split)


def _of_row() -> list[Column]:
    return [F.col(of_row).alias(name) for of_row, name in zip(ROW_HASHES, HASHES, strict=True)]
