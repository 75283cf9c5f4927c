"""A topic of change events as the state that it leaves, and a change as events: what `debezium-json` and `canal-json` add.

Leaves to `changes` what differs and to the formats how an event looks.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.changes import DELETE, INSERT, KIND, REPUBLISH, WRITTEN, Changes
from dbt.adapters.upsert_kafka.formats.changelog import ChangelogFormat
from dbt.adapters.upsert_kafka.records import KEY, PARTITION, VALUE, Records, extras

OLD = "old"


def live(found: DataFrame, layout: Records) -> DataFrame:
    """The records of a topic with a null where the event says that the row is gone; other formats have tombstones already."""
    if not isinstance(layout.value_format, ChangelogFormat):
        return found
    return found.withColumn(VALUE, F.expr(layout.value_format.live(layout.value, VALUE)))


def records(change: Changes, found: DataFrame | None, layout: Records) -> DataFrame:
    """The events to be written: `key, value, partition, seq` and the extras. A row that was there is taken back first.

    Args:
        found: the topic's records, None for a topic without.
    """
    format = layout.value_format
    assert isinstance(format, ChangelogFormat)
    written = change.frame.where(F.col(KIND).isin(*WRITTEN, REPUBLISH))
    others = extras(written)
    if found is None:
        return written.select(KEY, VALUE, PARTITION, F.lit(0).alias("seq"), *others)
    # Only the keys that change need their old rows, which the comparison by hashes did not carry.
    keys = written.where(F.col(KIND) != INSERT).select(KEY, PARTITION)
    last = found.join(keys, [KEY, PARTITION]).groupBy(KEY, PARTITION).agg(F.expr("max_by(value, offset)").alias(OLD))
    joined = written.join(last, [KEY, PARTITION], "left")
    steps = F.expr(
        f"CASE WHEN {KIND} = '{INSERT}' THEN array(named_struct('seq', 0, 'event', {VALUE})) "
        f"WHEN {KIND} = '{DELETE}' THEN array(named_struct('seq', 0, 'event', {format.retraction(layout.value, OLD)})) "
        f"ELSE array(named_struct('seq', 0, 'event', {format.retraction(layout.value, OLD)}), "
        f"named_struct('seq', 1, 'event', {VALUE})) END"
    )
    exploded = joined.select(KEY, PARTITION, F.explode(steps).alias("step"), *others)
    return exploded.select(KEY, F.col("step.event").alias(VALUE), PARTITION, "step.seq", *others)
