"""Rows against the topic: what a run would have to publish, computed once and kept until it is written.

Compares bytes with bytes, so it is the same for every format and a schema change shows as a change. Leaves to `guards`
whether the change is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.records import KEY, NULL_KEY, VALUE
from dbt.adapters.upsert_kafka.scan import VALUE_HASHES

KIND = "kind"
INSERT, UPDATE, DELETE, UNCHANGED = "insert", "update", "delete", "unchanged"
DUPLICATE, NULL = "duplicate", "null_key"
GONE = "gone"
KINDS = (INSERT, UPDATE, DELETE, UNCHANGED, DUPLICATE, NULL)


@dataclass(frozen=True)
class Changes:
    """The change of one run, held by Spark: `kind, key, value, partition` (null: the key is new), and how many of each kind."""

    frame: DataFrame
    counts: dict[str, int]
    live_keys: int
    split_keys: int

    def __getitem__(self, kind: str) -> int:
        return self.counts[kind]

    def records(self) -> DataFrame:
        """What is to be written."""
        written = self.frame.where(F.col(KIND).isin(INSERT, UPDATE, DELETE))
        return written.select(KEY, VALUE, "partition")


def compare(rows: DataFrame, latest: DataFrame | None, republish: bool = False) -> Changes:
    """Join the encoded rows with the topic's last records and keep what differs.

    The result is computed here, once: a SELECT that gives other rows each time it runs is still published as it was compared.

    Args:
        rows: `key, value, null_key`.
        latest: what `scan.latest` found, None for a topic without records.
        republish: also rows that are in the topic already.
    """
    copies = F.count(F.lit(1)).over(Window.partitionBy(KEY))
    hashes = [F.expr(h).alias(f"row_{i}") for i, h in enumerate(VALUE_HASHES)]
    rows = rows.select(KEY, VALUE, NULL_KEY, *hashes, copies.alias("copies"))
    if latest is None:
        nothing = [F.lit(None).cast("int").alias("partition"), F.lit(False).alias("live"), F.lit(False).alias("split")]
        joined = rows.select("*", *nothing, *(F.lit(None).cast("long").alias(f"hash_{i}") for i in range(len(VALUE_HASHES))))
    else:
        joined = rows.join(latest, KEY, "full_outer")
    compared = joined.select(_kind(republish).alias(KIND), KEY, VALUE, "partition", "live", "split")
    seen = Observation()
    counts = [F.count_if(F.col(KIND) == kind).alias(kind) for kind in KINDS]
    observed = compared.observe(seen, *counts, F.count_if("live").alias("live_keys"), F.count_if("split").alias("split_keys"))
    kept = observed.where(~F.col(KIND).isin(UNCHANGED, GONE)).select(KIND, KEY, VALUE, "partition")
    frame = kept.localCheckpoint(eager=True)
    found = dict(seen.get)
    return Changes(frame, {kind: found[kind] for kind in KINDS}, found["live_keys"], found["split_keys"])


def _kind(republish: bool) -> Column:
    is_row = F.col("copies").isNotNull()
    same = F.lit(True)
    for i in range(len(VALUE_HASHES)):
        same = same & (F.col(f"row_{i}") == F.col(f"hash_{i}"))
    live = F.coalesce("live", F.lit(False))
    return (
        F.when(is_row & F.col(NULL_KEY), NULL)
        .when(is_row & (F.col("copies") > 1), DUPLICATE)
        .when(is_row & ~live, INSERT)
        .when(is_row & same, UPDATE if republish else UNCHANGED)
        .when(is_row, UPDATE)
        .when(live, DELETE)
        .otherwise(GONE)
    )
