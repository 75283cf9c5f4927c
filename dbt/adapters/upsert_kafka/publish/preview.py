"""The report of a dry run: how many keys a run would insert, update and delete, with examples of old and new values."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.errors import count_of
from dbt.adapters.upsert_kafka.formats.records import KEY, VALUE, Records
from dbt.adapters.upsert_kafka.publish.changes import Changes
from dbt.adapters.upsert_kafka.publish.kinds import KIND, Kind

EXAMPLES = 5


def lines(changes: Changes, records: Records, found: DataFrame | None) -> Iterator[str]:
    """One line per kind of change, one per example.

    Args:
        found: the topic's records, None for a topic without records.
    """
    for kind in (Kind.INSERT, Kind.UPDATE, Kind.DELETE):
        if changes[kind]:
            yield f"would {kind} {count_of(changes[kind], 'key')}, for example"
            some = changes.frame.where(F.col(KIND) == kind).orderBy(KEY).limit(EXAMPLES).select(KEY, VALUE)
            yield from _examples(kind, some, records, found)


def _examples(kind: Kind, some: DataFrame, records: Records, found: DataFrame | None) -> Iterator[str]:
    if kind == Kind.INSERT or found is None:
        with_old = some.withColumn("old", F.lit(None).cast("binary"))
    else:
        last = (
            found.join(F.broadcast(some.select(KEY)), KEY)
            .groupBy(KEY)
            # A value before a tombstone, because the key may be in several partitions, see `scan`.
            .agg(F.max_by(VALUE, F.struct(F.col(VALUE).isNotNull(), "timestamp", "offset")).alias("old"))
        )
        with_old = some.join(last, KEY, "left")
    shown = with_old.orderBy(KEY).select(
        records.show_key().alias("key"), records.show_value("old").alias("old"), records.show_value(VALUE).alias("new")
    )
    for row in shown.collect():
        before = row["old"] if row["old"] is not None else "(none)"
        after = row["new"] if kind != Kind.DELETE and row["new"] is not None else "(deleted)"
        yield f"  {row['key']}: {before} -> {after}"
