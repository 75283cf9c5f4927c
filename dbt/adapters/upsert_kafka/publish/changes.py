"""Rows against the topic: what a run would have to publish, computed once and kept until it is written.

Compares bytes with bytes, so it is the same for every format and a schema change shows as a change. Leaves to `guards`
whether the change is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.held import hold, keep
from dbt.adapters.upsert_kafka.records import (
    DOOMED,
    KEY,
    KEY_HASH,
    NULL_KEY,
    PARTITION,
    ROW_HASH,
    SEQUENCE,
    SIZE,
    VALUE,
    Records,
    extras,
)
from dbt.adapters.upsert_kafka.scan import HASH
from dbt.adapters.upsert_kafka.snapshots import CHECKSUM, KEYS, Digest, digest_columns
from dbt.adapters.upsert_kafka.tally import Tally

KIND = "kind"
KEY_GROUPS = 120
"""In which duplicate keys are looked for: Spark aggregates arrays of more groups by sorting."""
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
LOUD = tuple(kind for kind in KINDS if kind not in QUIET)


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

    @property
    def is_complete(self) -> bool:
        """Whether the topic holds the rows and nothing else once every difference is written."""
        return self.deletes and self.deletes_missing


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
    digest: Digest | None = None
    """Of the rows, if the topic holds others than before once this is written."""
    everything: DataFrame | None = None
    """As `frame` with what stays as it is and the rows' hashes, but without their values; where it was asked for."""

    def __getitem__(self, kind: str) -> int:
        return self.counts[kind]

    @property
    def keys_after(self) -> int:
        """How many live keys the topic has once this is written."""
        return self.live_keys + self[INSERT] - self[DELETE]

    @property
    def is_all(self) -> bool:
        """Whether the topic holds exactly the rows once this is written."""
        return self.policy.is_complete and not (self.split_keys or self[FOREIGN] or self[KEPT] or self[CONFLICT])

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

    def state(self) -> DataFrame:
        """Every key that the topic has once this is written, as a snapshot's log; of a first load or with `everything`."""
        if self.everything is None:
            new = self.frame.where(F.col(KIND) == INSERT)
            return new.select(KEY, PARTITION, F.col(ROW_HASH).alias(HASH), F.lit(1).alias(KEYS))
        live = F.col(KIND).isin(INSERT, UPDATE, REPUBLISH, UNCHANGED)
        keys = F.when(live, 1).otherwise(0).alias(KEYS)
        return self.everything.where(F.col(KIND) != NULL).select(KEY, PARTITION, F.when(live, F.col(ROW_HASH)).alias(HASH), keys)

    def log(self) -> DataFrame:
        """What this changes, as an addition to a snapshot's log: the value that a key loses, and the one that it gets."""
        written = self.frame.where(F.col(KIND).isin(*WRITTEN))
        old = F.struct(HASH, F.lit(-1).alias(KEYS))
        new = F.struct(F.col(ROW_HASH).alias(HASH), F.lit(1).alias(KEYS))
        steps = F.when(F.col(KIND) == INSERT, F.array(new)).when(F.col(KIND) == DELETE, F.array(old)).otherwise(F.array(old, new))
        return written.select(KEY, PARTITION, F.explode(steps).alias("step")).select(KEY, PARTITION, "step.*")


def none(encoded: DataFrame, rows: int, live_keys: int, policy: Policy) -> Changes:
    """No change: the topic holds just what the encoded rows are."""
    empty = encoded.limit(0).withColumns({KIND: F.lit(UNCHANGED), PARTITION: F.lit(None).cast("int")})
    return Changes(empty, dict.fromkeys(KINDS, 0) | {UNCHANGED: live_keys}, rows, live_keys, 0, 0, policy)


def compare(
    encoded: DataFrame,
    latest: DataFrame | None,
    records: Records,
    policy: Policy,
    keeps_everything: bool = False,
    is_watched: bool = True,
) -> Changes:
    """Join the encoded rows with the topic's last records and keep what differs.

    The result is computed here, once: a SELECT that gives other rows each time it runs is still published as it was compared.

    Args:
        encoded: what `Records.encode` makes of the SELECT.
        latest: what `scan.latest` found, None for a topic without records.
        keeps_everything: whether the result tells of every key, also of those that stay as they are.
        is_watched: whether something is observed of the encoded rows when they are computed.
    """
    if latest is None and not policy.takes_latest:
        return _first_load(hold(encoded) if is_watched else keep(encoded), policy)
    seen = Tally()
    totals = {"rows": "copies IS NOT NULL", "live_keys": "live", "split_keys": "split"}
    sums = [F.count_if(F.expr(e)).alias(name) for name, e in totals.items()]
    watched = seen.of(_joined(encoded, latest, policy), *_counts(*KINDS, VANISHED), *sums, _largest())
    everything = None
    if keeps_everything:
        of_quiet = {name: F.when(~_is_quiet(), F.col(name)) for name in (VALUE, *extras(watched))}
        everything = _held(watched.withColumns(of_quiet))
        frame = everything.where(~_is_quiet())
    else:
        frame = _held(watched.where(~_is_quiet()))
    found = seen.found
    by_kind = {kind: found[kind] for kind in KINDS}
    rows_and_keys = found["rows"], found["live_keys"], found["split_keys"]
    change = Changes(frame, by_kind, *rows_and_keys, found["largest"] or 0, policy, everything=everything)
    return _without_foreign(change, found[VANISHED], records)


def compare_part(encoded: DataFrame, latest: DataFrame, records: Records, policy: Policy, rows: int, live_keys: int) -> Changes:
    """The same of a part of the rows and of the topic, if all other keys are as their rows are and the policy is complete.

    Most keys of such a part stay as they are too. They need not be counted, because the numbers of the whole table are known.

    Args:
        rows: how many the whole table has.
        live_keys: how many the whole topic has.
    """
    seen = Tally()
    different = _joined(encoded, latest, policy).where(~_is_quiet())
    frame = _held(seen.of(different, *_counts(*LOUD, VANISHED), _largest()))
    found = seen.found
    gone = found[DELETE] + found[VANISHED]
    by_kind = {kind: found[kind] for kind in LOUD} | {UNCHANGED: live_keys - found[UPDATE] - gone, KEPT: 0}
    change = Changes(frame, by_kind, rows, live_keys, 0, found["largest"] or 0, policy)
    return _without_foreign(change, found[VANISHED], records)


def _joined(encoded: DataFrame, latest: DataFrame | None, policy: Policy) -> DataFrame:
    """Each key's row and last record in the topic, and what is to be done with it."""
    rows = _one_per_key(encoded, policy)
    if latest is not None:
        return rows.join(latest, KEY, "full_outer").withColumn(KIND, _kind(policy))
    nothing = {PARTITION: F.lit(None).cast("int"), "live": F.lit(False), "split": F.lit(False), HASH: F.lit(None).cast("long")}
    return rows.withColumns(nothing).withColumn(KIND, _kind(policy))


def _without_foreign(change: Changes, vanished: int, records: Records) -> Changes:
    """The same change with each vanished key either deleted or left alone, because it is not one of the model's."""
    if not vanished:
        return change
    is_vanished = F.col(KIND) == VANISHED
    marked = records.mark_foreign(change.frame, is_vanished)
    kind = F.when(is_vanished, F.when(F.col(FOREIGN), FOREIGN).otherwise(DELETE)).otherwise(F.col(KIND))
    seen = Tally()
    frame = _held(seen.of(marked.withColumn(KIND, kind), *_counts(FOREIGN)))
    foreign = seen.found[FOREIGN]
    counts = {**change.counts, FOREIGN: foreign, DELETE: change[DELETE] + vanished - foreign}
    return replace(change, frame=frame, counts=counts)


def _first_load(held: DataFrame, policy: Policy) -> Changes:
    """The change of a topic without records: every row is new, and rows need not travel to find that their keys are unique."""
    kind = F.when(F.col(NULL_KEY), NULL).when(F.col(DOOMED), GONE).otherwise(INSERT)
    frame = held.withColumns({KIND: kind, PARTITION: F.lit(None).cast("int")})
    is_new = ~(F.col(NULL_KEY) | F.col(DOOMED))
    # Hashes travel as arrays, which costs a third of counting them one by one; keys are looked at if two have the same.
    groups = frame.groupBy(F.pmod(KEY_HASH, F.lit(KEY_GROUPS))).agg(
        *digest_columns(),
        F.count_if(is_new).alias(INSERT),
        F.max(F.when(is_new, F.col(SIZE))).alias("largest"),
        F.collect_list(F.when(~F.col(NULL_KEY), F.col(KEY_HASH))).alias("hashes"),
    )
    [found] = groups.agg(
        *(F.coalesce(sum_, F.lit(0)) for sum_ in (F.sum("rows"), F.sum("nulls"), F.bit_xor(CHECKSUM))),
        F.sum(INSERT).alias(INSERT),
        F.max("largest").alias("largest"),
        F.max(F.size("hashes") > F.size(F.array_distinct("hashes"))).alias("repeats"),
    ).collect()
    digest = Digest(*found[:3])
    by_kind = dict.fromkeys(KINDS, 0) | {NULL: digest.nulls, INSERT: found[INSERT] or 0}
    if found["repeats"]:
        copies = F.count(F.when(F.col(KIND) != NULL, F.lit(1))).over(Window.partitionBy(KEY))
        frame = _held(frame.withColumn(KIND, F.when((F.col(KIND) != NULL) & (copies > 1), DUPLICATE).otherwise(F.col(KIND))))
        counted = {row[KIND]: row["count"] for row in frame.groupBy(KIND).count().collect()}
        by_kind = {kind: counted.get(kind, 0) for kind in KINDS}
    return Changes(frame, by_kind, digest.rows, 0, 0, found.largest or 0, policy, digest)


def _largest() -> Column:
    return F.max(F.when(F.col(KIND).isin(INSERT, UPDATE, REPUBLISH), F.col(SIZE))).alias("largest")


def _counts(*kinds: str) -> list[Column]:
    return [F.count_if(F.col(KIND) == kind).alias(kind) for kind in kinds]


def _is_quiet() -> Column:
    return F.col(KIND).isin(*QUIET)


def _held(frame: DataFrame) -> DataFrame:
    before = [HASH] if HASH in frame.columns else []
    return hold(frame.select(KIND, KEY, VALUE, PARTITION, *extras(frame), *before, ROW_HASH))


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
    same = F.col(ROW_HASH).eqNullSafe(F.col(HASH))
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
