"""Read a topic once, between pinned offsets: the last record of each key.

Leaves to `topics` which offsets there are, and to `changes` what follows from the records.
"""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.records import VALUE_HASH
from dbt.adapters.upsert_kafka.topics import Topic

HASH = "hash"


def read(spark: SparkSession, kafka: KafkaSettings, topic: Topic) -> DataFrame:
    """All records of the topic between the offsets that `topic` pins."""
    options = {
        **kafka.spark_source(),
        "subscribe": topic.name,
        "startingOffsets": _offsets(topic.name, topic.first),
        "endingOffsets": _offsets(topic.name, topic.end),
    }
    return spark.read.format("kafka").options(**options).load()


def latest(records: DataFrame, split_keys: bool) -> DataFrame:
    """The last record of each key as `key, partition, live, hash, split`; a key whose last value is null is not live.

    Inside a partition the offset decides. A key may be in several partitions only if others wrote it there: then
    `split_keys` must be true, and the latest timestamp decides among them (one more shuffle, so not done for all).
    `split` says whether the key was found in more than one.
    """
    hashed = records.where("key IS NOT NULL").selectExpr(
        "key",
        "partition",
        "offset",
        "timestamp",
        "value IS NOT NULL AS filled",
        f"{VALUE_HASH} AS {HASH}",
    )
    last = [
        F.expr("max(offset)").alias("offset"),
        F.expr("max(CASE WHEN filled THEN offset END)").alias("filled_offset"),
        F.max_by(HASH, "offset").alias(HASH),
    ]
    if split_keys:
        per_partition = hashed.groupBy("key", "partition").agg(*last, F.expr("max_by(timestamp, offset)").alias("timestamp"))
        newest = F.max_by(F.struct("partition", "offset", "filled_offset", HASH), F.struct("timestamp", "partition"))
        found = per_partition.groupBy("key").agg(newest.alias("r"), F.lit(False).alias("split")).select("key", "r.*", "split")
    else:
        partitions = [F.expr("max(partition)").alias("partition"), F.expr("min(partition) <> max(partition)").alias("split")]
        found = hashed.groupBy("key").agg(*last, *partitions)
    return found.selectExpr("key", "partition", "coalesce(offset = filled_offset, false) AS live", HASH, "split")


def _offsets(topic: str, offsets: object) -> str:
    return json.dumps({topic: {str(p): o for p, o in dict(offsets).items()}})  # type: ignore[call-overload]
