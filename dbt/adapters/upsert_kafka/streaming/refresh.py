"""The end of --full-refresh: tombstones for the keys that the stream did not write again."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.formats.records import KEY, PARTITION, VALUE
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.publish import scan
from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint, release_checkpoints
from dbt.adapters.upsert_kafka.streaming.batches import Batches
from dbt.adapters.upsert_kafka.streaming.rows import BatchRecords, Counts


def finish(spark: SparkSession, batches: Batches) -> None:
    """Delete the keys whose last record is older than the refresh, in every partition that has a value of them.

    The state record has the offsets at which the refresh began, so that the next run finishes a refresh that was killed.
    """
    began = batches.stream.refresh
    topic = topics.describe(batches.admin, batches.topic.name)
    if began is None or topic is None:
        return
    with release_checkpoints():
        last = (
            scan.read(spark, batches.request.kafka, topic)
            .where(f"{KEY} IS NOT NULL")
            .groupBy(KEY, PARTITION)
            .agg(F.max("offset").alias("last"), F.max(F.when(F.col(VALUE).isNotNull(), F.col("offset"))).alias("value"))
        )
        begins = F.create_map(*(F.lit(number) for bounds in began.items() for number in bounds))
        is_old = F.col("last") < F.coalesce(begins[F.col(PARTITION)], F.lit(0))
        old = last.where((F.col("last") == F.col("value")) & is_old).select(KEY, PARTITION)
        # Keys of other writers are left as they are, as by a batch run.
        own = batches.layout.mark_foreign(old, F.lit(True)).where("NOT foreign")
        tombstones = checkpoint(own.select(KEY, F.lit(None).cast("binary").alias(VALUE), PARTITION))
        number = tombstones.count()
        batches.write(BatchRecords(tombstones, Counts(deleted=number)), replace(batches.stream, refresh=None))
        batches.counts.deleted += number
