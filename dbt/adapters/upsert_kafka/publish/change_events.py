"""What the CDC formats `debezium-json` and `canal-json` need beyond other formats: deletes and old rows are events with values.

Leaves to `difference` what differs and to `formats` how an event looks.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.formats.changelog import ChangelogFormat
from dbt.adapters.upsert_kafka.formats.records import KEY, PARTITION, VALUE, Records, extras
from dbt.adapters.upsert_kafka.publish.changes import Changes
from dbt.adapters.upsert_kafka.publish.kinds import KIND, Kind

OLD = "old"


def with_tombstones(found: DataFrame, layout: Records) -> DataFrame:
    """The records of a topic, with a null value for each delete event. Other formats have tombstones already."""
    if not isinstance(layout.value_format, ChangelogFormat):
        return found
    return found.withColumn(VALUE, F.expr(layout.value_format.live(layout.value, VALUE)))


def records(changes: Changes, found: DataFrame | None, layout: Records) -> DataFrame:
    """The events to write: `key, value, partition, seq`, headers and timestamp.

    As in Flink, an update is two events: the delete of the old row (`seq` 0) and the insert of the new one (`seq` 1).

    Args:
        found: the topic's records, None for a topic without records.
    """
    format = layout.value_format
    assert isinstance(format, ChangelogFormat)
    written = changes.written()
    others = extras(written)
    if found is None:
        return written.select(KEY, VALUE, PARTITION, F.lit(0).alias("seq"), *others)
    # The comparison has only hashes of the old rows. They are read again, for the keys that change.
    keys = written.where(F.col(KIND) != Kind.INSERT).select(KEY, PARTITION)
    old_rows = found.join(keys, [KEY, PARTITION]).groupBy(KEY, PARTITION).agg(F.expr("max_by(value, offset)").alias(OLD))
    joined = written.join(old_rows, [KEY, PARTITION], "left")
    delete = f"named_struct('seq', 0, 'event', {format.retraction(layout.value, OLD)})"
    events = F.expr(
        f"CASE WHEN {KIND} = '{Kind.INSERT}' THEN array(named_struct('seq', 0, 'event', {VALUE})) "
        f"WHEN {KIND} = '{Kind.DELETE}' THEN array({delete}) "
        f"ELSE array({delete}, named_struct('seq', 1, 'event', {VALUE})) END"
    )
    exploded = joined.select(KEY, PARTITION, F.explode(events).alias("e"), *others)
    return exploded.select(KEY, F.col("e.event").alias(VALUE), PARTITION, "e.seq", *others)
