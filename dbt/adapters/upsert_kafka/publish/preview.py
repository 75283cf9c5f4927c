"""The dry run's report: how many records a run would write, and some of them with old and new values."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.changes import DELETE, INSERT, KIND, UPDATE, Changes
from dbt.adapters.upsert_kafka.records import KEY, VALUE, Records

EXAMPLES = 5


def lines(changes: Changes, records: Records, found: DataFrame | None) -> Iterator[str]:
    """One line per kind of change, one per example.

    Args:
        found: the topic's records, None if it has none.
    """
    for kind, verb in ((INSERT, "insert"), (UPDATE, "update"), (DELETE, "delete")):
        if not changes[kind]:
            continue
        yield f"would {verb} {changes[kind]} keys, for example"
        some = changes.frame.where(F.col(KIND) == kind).orderBy(KEY).limit(EXAMPLES).select(KEY, VALUE)
        yield from _examples(kind, some, records, found)


def _examples(kind: str, some: DataFrame, records: Records, found: DataFrame | None) -> Iterator[str]:
    if kind == INSERT or found is None:
        old = some.withColumn("old", F.lit(None).cast("binary"))
    else:
        last = (
            found.join(F.broadcast(some.select(KEY)), KEY)
            .groupBy(KEY)
            .agg(F.max_by(VALUE, F.struct("timestamp", "offset")).alias("old"))
        )
        old = some.join(last, KEY, "left")
    shown = old.orderBy(KEY).select(
        records.show_key().alias("key"), records.show_value("old").alias("old"), records.show_value(VALUE).alias("new")
    )
    for row in shown.collect():
        before = row["old"] if row["old"] is not None else "(none)"
        after = row["new"] if kind != DELETE and row["new"] is not None else "(deleted)"
        yield f"  {row['key']}: {before} -> {after}"
