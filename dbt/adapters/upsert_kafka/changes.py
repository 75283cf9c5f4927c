"""Rows against the topic: what a run would have to publish, computed once and kept until it is written.

Compares bytes with bytes, so it is the same for every format and a schema change shows as a change. Leaves to `guards`
whether the change is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.held import hold
from dbt.adapters.upsert_kafka.records import DOOMED, KEY, NULL_KEY, SEQUENCE, VALUE, Records, extras, size
from dbt.adapters.upsert_kafka.scan import VALUE_HASHES
from dbt.adapters.upsert_kafka.tally import Tally

KIND, PARTITION = "kind", "partition"
HASHES_PER_BUCKET = 250_000
INSERT, UPDATE, DELETE = WRITTEN = ("insert", "update", "delete")
REPUBLISH = "republish"
"""As it is in the topic already, and written again because of --full-refresh."""
UNCHANGED = "unchanged"
DUPLICATE, NULL = "duplicate", "null_key"
CONFLICT = "conflict"
"""A changed row where only new keys may be written."""
FOREIGN = "foreign"
"""A key of the topic that the model's key format could not have written."""
KEPT, GONE = "kept", "gone"
VANISHED = "vanished"
"""A live key of the topic without a row, before it is known whether it is foreign."""
KINDS = (*WRITTEN, REPUBLISH, UNCHANGED, DUPLICATE, NULL, CONFLICT, FOREIGN, KEPT)
# Quiet kinds need no examples, so that they need not be kept.
QUIET = (UNCHANGED, KEPT, GONE)


@dataclass(frozen=True)
class Policy:
    """Which differences are written. Made from a model's options by `publish`."""

    update_mode: str = "upsert"
    writes_nulls: bool = True
    deletes_missing: bool = True
    deletes_foreign: bool = False
    takes_latest: bool = False
    """Of several rows with one key the one with the greatest sequence, instead of an error."""
    republishes: bool = False
    """--full-refresh: every row again, whatever the update mode."""

    @property
    def only_new_keys(self) -> bool:
        return self.update_mode == "append" and not self.republishes

    @property
    def retracts(self) -> bool:
        return self.update_mode == "retract" and self.writes_nulls

    @property
    def deletes(self) -> bool:
        return self.writes_nulls and not self.only_new_keys


@dataclass(frozen=True)
class Changes:
    """The change of one run, held by Spark: `kind, key, value, partition` (null: the key is new), and how many of each kind."""

    frame: DataFrame
    counts: dict[str, int]
    rows: int
    live_keys: int
    split_keys: int
    largest: int
    """Bytes of the largest key and value together, of what would be written."""
    policy: Policy

    def __getitem__(self, kind: str) -> int:
        return self.counts[kind]

    def among(self, live_keys: int) -> Changes:
        """The change of a whole table, if this is that of a part and all other live keys of the topic are as their rows are."""
        others = live_keys - self.live_keys
        counts = {**self.counts, UNCHANGED: self.counts[UNCHANGED] + others}
        return replace(self, counts=counts, rows=self.rows + others, live_keys=live_keys)

    @property
    def keys_after(self) -> int:
        """How many live keys the topic has once this is written."""
        return self.live_keys + self[INSERT] - self[DELETE]

    @property
    def is_all(self) -> bool:
        """Whether the topic holds exactly the rows once this is written."""
        complete = self.policy.deletes and self.policy.deletes_missing
        return complete and not (self.split_keys or self[FOREIGN] or self[KEPT] or self[CONFLICT])

    @property
    def to_write(self) -> int:
        """How many keys the run would write."""
        return sum(self.counts[kind] for kind in (*WRITTEN, REPUBLISH))

    @property
    def messages(self) -> int:
        """How many messages that takes."""
        return self.to_write + (self.counts[UPDATE] if self.policy.retracts else 0)

    def records(self) -> DataFrame:
        """What is to be written: `key, value, partition`, the extras, and `seq` where a key has two records."""
        written = self.frame.where(F.col(KIND).isin(*WRITTEN, REPUBLISH))
        value = F.when(F.col(KIND) != DELETE, F.col(VALUE))
        if not self.policy.retracts:
            return written.select(KEY, value.alias(VALUE), PARTITION, *extras(written))
        null, new = (
            F.struct(F.lit(0).alias("seq"), F.lit(None).cast("binary").alias(VALUE)),
            F.struct(F.lit(1).alias("seq"), value.alias(VALUE)),
        )
        steps = F.when(F.col(KIND) == UPDATE, F.array(null, new)).otherwise(F.array(new))
        exploded = written.select(KEY, PARTITION, F.explode(steps).alias("step"), *extras(written))
        return exploded.select(KEY, f"step.{VALUE}", PARTITION, "step.seq", *extras(written))


def compare(encoded: DataFrame, latest: DataFrame | None, records: Records, policy: Policy) -> Changes:
    """Join the encoded rows with the topic's last records and keep what differs.

    The result is computed here, once: a SELECT that gives other rows each time it runs is still published as it was compared.

    Args:
        encoded: what `Records.encode` makes of the SELECT.
        latest: what `scan.latest` found, None for a topic without records.
    """
    if latest is None and not policy.takes_latest:
        return _first_load(encoded, policy)
    rows = _one_per_key(encoded, policy).withColumns({f"row_{i}": F.expr(h) for i, h in enumerate(VALUE_HASHES)})
    if latest is None:
        joined = rows.withColumns(
            {PARTITION: F.lit(None).cast("int"), "live": F.lit(False), "split": F.lit(False)}
            | {f"hash_{i}": F.lit(None).cast("long") for i in range(len(VALUE_HASHES))}
        )
    else:
        joined = rows.join(latest, KEY, "full_outer")
    compared = joined.withColumn(KIND, _kind(policy))
    seen = Tally()
    counts = [F.count_if(F.col(KIND) == kind).alias(kind) for kind in (*KINDS, VANISHED)]
    totals = {"rows": "copies IS NOT NULL", "live_keys": "live", "split_keys": "split"}
    sums = [F.count_if(F.expr(e)).alias(name) for name, e in totals.items()]
    watched = seen.of(compared, *counts, *sums, _largest().alias("largest"))
    frame = _held(watched.where(~F.col(KIND).isin(*QUIET)))
    found = seen.found
    by_kind = {kind: found[kind] for kind in KINDS}
    change = Changes(frame, by_kind, found["rows"], found["live_keys"], found["split_keys"], found["largest"] or 0, policy)
    return _without_foreign(change, found[VANISHED], records) if found[VANISHED] else change


def _without_foreign(change: Changes, vanished: int, records: Records) -> Changes:
    """The same change with each vanished key either deleted or left alone, because it is not one of the model's."""
    is_vanished = F.col(KIND) == VANISHED
    marked = records.mark_foreign(change.frame, is_vanished)
    kind = F.when(is_vanished, F.when(F.col(FOREIGN), FOREIGN).otherwise(DELETE)).otherwise(F.col(KIND))
    seen = Tally()
    foreign = F.count_if(F.col(KIND) == FOREIGN).alias(FOREIGN)
    frame = _held(seen.of(marked.withColumn(KIND, kind), foreign, _largest().alias("largest")))
    found = seen.found
    counts = {**change.counts, FOREIGN: found[FOREIGN], DELETE: change[DELETE] + vanished - found[FOREIGN]}
    return replace(change, frame=frame, counts=counts, largest=found["largest"] or 0)


def _first_load(rows: DataFrame, policy: Policy) -> Changes:
    """The change of a topic without records: every row is new, and rows need not travel to find that their keys are unique."""
    kind = F.when(F.col(NULL_KEY), NULL).when(F.col(DOOMED), GONE).otherwise(INSERT)
    frame = hold(rows).withColumns({KIND: kind, PARTITION: F.lit(None).cast("int")})
    # Counted afterwards: an observation of the rows on their way would take longer.
    counts = [F.count_if(F.col(KIND) == kind).alias(kind) for kind in (NULL, INSERT)]
    [found] = frame.agg(F.count(F.lit(1)).alias("rows"), *counts, _largest().alias("largest")).collect()
    by_kind = dict.fromkeys(KINDS, 0) | {kind: found[kind] for kind in (NULL, INSERT)}
    if _repeats_hashes(frame.where(~F.col(NULL_KEY)).select(F.xxhash64(KEY).alias("hash")), found.rows):
        copies = F.count(F.when(F.col(KIND) != NULL, F.lit(1))).over(Window.partitionBy(KEY))
        frame = _held(frame.withColumn(KIND, F.when((F.col(KIND) != NULL) & (copies > 1), DUPLICATE).otherwise(F.col(KIND))))
        counted = {row[KIND]: row["count"] for row in frame.groupBy(KIND).count().collect()}
        by_kind = {kind: counted.get(kind, 0) for kind in KINDS}
    return Changes(frame, by_kind, found.rows, 0, 0, found.largest or 0, policy)


def _repeats_hashes(hashes: DataFrame, number: int) -> bool:
    """Whether a hash occurs twice: only then the keys themselves must be looked at.

    Hashes travel as arrays, which costs a third of counting them one by one.
    """
    buckets = number // HASHES_PER_BUCKET + 1
    arrays = hashes.groupBy(F.pmod("hash", F.lit(buckets))).agg(F.collect_list("hash").alias("all"))
    return not arrays.where(F.size("all") > F.size(F.array_distinct("all"))).isEmpty()


def _largest() -> Column:
    return F.max(F.when(F.col(KIND).isin(*WRITTEN, REPUBLISH), size()))


def _held(frame: DataFrame) -> DataFrame:
    return hold(frame.select(KIND, KEY, VALUE, PARTITION, *extras(frame)))


def _one_per_key(encoded: DataFrame, policy: Policy) -> DataFrame:
    """Count each key's rows, so that a guard can refuse more than one; if the latest counts, the others are gone first."""
    by_key = Window.partitionBy(KEY)
    if policy.takes_latest:
        newest = F.max(F.when(~F.col(NULL_KEY), F.col(SEQUENCE))).over(by_key)
        encoded = (
            encoded.withColumn("newest", newest)
            .where(F.col(NULL_KEY) | (F.col(SEQUENCE) == F.col("newest")))
            .drop("newest", SEQUENCE)
        )
    return encoded.withColumn("copies", F.count(F.lit(1)).over(by_key))


def _kind(policy: Policy) -> Column:
    """What is to be done with a row and the topic's record of its key, of which one may be missing."""
    is_row = F.col("copies").isNotNull()
    live = F.coalesce("live", F.lit(False))
    same = F.lit(True)
    for i in range(len(VALUE_HASHES)):
        same = same & F.expr(f"row_{i} <=> hash_{i}")
    vanished = KEPT
    if policy.deletes and policy.deletes_missing:
        vanished = DELETE if policy.deletes_foreign else VANISHED
    return (
        F.when(is_row & F.col(NULL_KEY), NULL)
        .when(is_row & (F.col("copies") > 1), DUPLICATE)
        .when(is_row & F.col(DOOMED), F.when(live, DELETE if policy.deletes else KEPT).otherwise(GONE))
        .when(is_row & ~live, INSERT)
        .when(is_row & same, REPUBLISH if policy.republishes else UNCHANGED)
        .when(is_row, CONFLICT if policy.only_new_keys else UPDATE)
        .when(live, vanished)
        .otherwise(GONE)
    )


def examples(changes: Changes, kind: str, shown: Column, number: int) -> list[str]:
    """Some keys of one kind, as a person reads them."""
    return [row["shown"] for row in changes.frame.where(F.col(KIND) == kind).select(shown.alias("shown")).limit(number).collect()]
