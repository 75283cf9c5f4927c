"""Read a topic between pinned offsets, and find the last record of each key.

Leaves to `kafka_client.topics` which offsets a topic has and to `difference` what follows from the records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.formats.records import KEY, PARTITION, VALUE, hashes
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic

IS_LIVE, IS_SPLIT = "live", "split"
HASHES = "hash_1", "hash_2"
STALE = "stale"
"""The other partitions in which the last record of a split key has a value."""


def read(spark: SparkSession, kafka: KafkaSettings, topic: Topic) -> DataFrame:
    """All committed records of the topic between the offsets in `topic`."""
    options = {
        **kafka.committed().spark_source(),
        "subscribe": topic.name,
        "startingOffsets": _offsets(topic.name, topic.first),
        "endingOffsets": _offsets(topic.name, topic.end),
    }
    return spark.read.format("kafka").options(**options).load()


def latest(records: DataFrame, split_keys: bool, seed: int) -> DataFrame:
    """The last record of each key, as `key, partition, live, hash_1, hash_2, split` and, with `split_keys`, `stale`.

    `live`: the last value is not null. `hash_1`, `hash_2`: the hashes of the key and its last value. `split`: the key is in more
    than one partition, because another writer put it there or partitions were added.

    Args:
        split_keys: find the record that counts of split keys; `split` is then true only if several partitions have a value
            of the key. Without, only `split` is right for these keys. One more shuffle is needed, so callers ask for it only
            if there are split keys.
        seed: of the hashes.
    """
    has_value = F.col(VALUE).isNotNull().alias("has_value")
    of_record = [column.alias(name) for name, column in zip(HASHES, hashes(seed), strict=True)]
    hashed = records.where(f"{KEY} IS NOT NULL").select(KEY, PARTITION, "offset", "timestamp", has_value, *of_record)
    last = [
        F.expr("max(offset)").alias("offset"),
        F.expr("max(CASE WHEN has_value THEN offset END)").alias("value_offset"),
        *(F.max_by(name, "offset").alias(name) for name in HASHES),
    ]
    is_live = f"coalesce(offset = value_offset, false) AS {IS_LIVE}"
    if split_keys:
        by_partition = hashed.groupBy(KEY, PARTITION).agg(*last, F.expr("max_by(timestamp, offset)").alias("timestamp"))
        return _merged(by_partition.selectExpr(KEY, PARTITION, is_live, *HASHES, "timestamp"))
    is_split = F.expr(f"min({PARTITION}) <> max({PARTITION})").alias(IS_SPLIT)
    found = hashed.groupBy(KEY).agg(*last, F.expr(f"max({PARTITION})").alias(PARTITION), is_split)
    return found.selectExpr(KEY, PARTITION, is_live, *HASHES, IS_SPLIT)


def _merged(by_partition: DataFrame) -> DataFrame:
    """The record that counts of each key, from its last record in each partition.

    A value counts before a tombstone, then the latest timestamp. After compaction has removed the tombstones, a value in any
    partition is what every reader sees; and timestamps may not be in the order of the writes.
    """
    age = F.struct(IS_LIVE, "timestamp", PARTITION)
    merged = by_partition.groupBy(KEY).agg(
        F.max_by(F.struct(PARTITION, IS_LIVE, *HASHES), age).alias("r"),
        (F.count_if(F.col(IS_LIVE)) > 1).alias(IS_SPLIT),
        F.collect_list(F.when(F.col(IS_LIVE), F.col(PARTITION))).alias(STALE),
    )
    return merged.select(KEY, "r.*", IS_SPLIT, F.array_remove(STALE, F.col(f"r.{PARTITION}")).alias(STALE))


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})
