"""Compare encoded rows with the last records of a topic, key by key: one function for each amount of data that is compared.

Values are compared by their hashes, so the comparison is the same for every format, and a change of format or schema is a change
of values. Leaves to `compare` which of the functions a run needs.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.formats.records import (
    IS_DELETED,
    KEY,
    KEY_HASH,
    NULL_KEY,
    PARTITION,
    ROW_HASHES,
    SEQUENCE,
    SIZE,
    VALUE,
    Records,
    extras,
)
from dbt.adapters.upsert_kafka.publish import digest
from dbt.adapters.upsert_kafka.publish.changes import Changes
from dbt.adapters.upsert_kafka.publish.digest import Digest
from dbt.adapters.upsert_kafka.publish.kinds import COPIES, COUNTED, KIND, NOT_SHOWN, WRITTEN, Kind, Policy, kind_of
from dbt.adapters.upsert_kafka.publish.scan import HASHES, IS_LIVE, IS_SPLIT, STALE
from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint
from dbt.adapters.upsert_kafka.spark.metrics import ObservedMetrics

KEY_GROUPS = 120
"""Groups in which `_has_equal_hashes` looks for duplicates: with more, Spark sorts to aggregate arrays instead of hashing."""
FEW_HASHES = 250_000
"""Hashes that one task compares."""


def none(encoded: DataFrame, rows: int, live_keys: int, policy: Policy) -> Changes:
    """No change: the topic has exactly the encoded rows."""
    empty = encoded.limit(0).withColumns({KIND: F.lit(Kind.UNCHANGED), PARTITION: F.lit(None).cast("int")})
    return Changes(empty, dict.fromkeys(COUNTED, 0) | {Kind.UNCHANGED: live_keys}, rows, live_keys, 0, 0, policy)


def with_nothing(encoded: DataFrame, policy: Policy) -> tuple[Changes, Digest]:
    """The changes to a topic without records, and the digest of the rows. Every row is new.

    Duplicate keys are found without a shuffle of the rows: the keys are compared only if two of their hashes are equal.

    Args:
        encoded: checkpointed, lazily or not; with policy.takes_latest use `with_latest`.
    """
    kind = (
        f"CASE WHEN {NULL_KEY} THEN '{Kind.NULL}' WHEN {IS_DELETED} THEN '{Kind.ABSENT}' "
        f"WHEN {VALUE} IS NULL THEN '{Kind.NULL_VALUE}' ELSE '{Kind.INSERT}' END"
    )
    frame = encoded.select("*", F.expr(f"{kind} AS {KIND}"), F.expr(f"CAST(NULL AS INT) AS {PARTITION}"))
    is_new = f"{KIND} = '{Kind.INSERT}'"
    [found] = frame.agg(
        *digest.aggregates(),
        F.expr(f"count_if({is_new}) AS new"),
        F.expr(f"count_if({KIND} = '{Kind.NULL_VALUE}') AS null_values"),
        F.expr(f"max(CASE WHEN {is_new} THEN {SIZE} END) AS largest"),
    ).collect()
    of_rows = Digest(*(found[name] for name in Digest._fields))
    counted = {Kind.NULL: of_rows.nulls, Kind.INSERT: found["new"], Kind.NULL_VALUE: found["null_values"]}
    counts = dict.fromkeys(COUNTED, 0) | counted
    if _has_equal_hashes(encoded, of_rows.rows):
        copies = F.count(F.when(F.col(KIND) != Kind.NULL, F.lit(1))).over(Window.partitionBy(KEY))
        is_duplicate = (F.col(KIND) != Kind.NULL) & (copies > 1)
        frame = _checkpoint(frame.withColumn(KIND, F.when(is_duplicate, Kind.DUPLICATE).otherwise(F.col(KIND))))
        by_kind = {row[KIND]: row["count"] for row in frame.groupBy(KIND).count().collect()}
        counts = {kind: by_kind.get(kind.value, 0) for kind in COUNTED}
    return Changes(frame, counts, of_rows.rows, 0, 0, found["largest"] or 0, policy), of_rows


def _has_equal_hashes(encoded: DataFrame, rows: int) -> bool:
    """Whether two keys have the same hash. Many hashes are shuffled as arrays, in a third of the time of counting them."""
    hashes = encoded.where(~F.col(NULL_KEY)).select(KEY_HASH)
    if rows <= FEW_HASHES:
        equal = hashes.coalesce(1).groupBy(KEY_HASH).count().where("count > 1")
    else:
        groups = hashes.groupBy(F.pmod(KEY_HASH, F.lit(KEY_GROUPS))).agg(F.collect_list(KEY_HASH).alias("hashes"))
        equal = groups.where(F.size("hashes") > F.size(F.array_distinct("hashes"))).select(F.lit(1))
    return bool(equal.limit(1).collect())


def with_latest(
    encoded: DataFrame, latest: DataFrame | None, records: Records, policy: Policy, keeps_all_keys: bool = False
) -> Changes:
    """The changes to a topic with these last records.

    Args:
        latest: all keys of the topic, see `scan.latest`; None for a topic without records.
        keeps_all_keys: whether the result has `all_keys`.
    """
    metrics = ObservedMetrics()
    totals = {"rows": f"{COPIES} IS NOT NULL", "live_keys": IS_LIVE, "split_keys": IS_SPLIT}
    aggregates = [F.expr(f"count_if({condition}) AS {name}") for name, condition in totals.items()]
    joined = metrics.observe(_joined(encoded, latest, policy), *_counts(*COUNTED, Kind.VANISHED), *aggregates, _largest())
    all_keys = None
    if keeps_all_keys:
        without_values = {name: F.when(_is_shown(), F.col(name)) for name in (VALUE, *extras(joined))}
        all_keys = _checkpoint(joined.withColumns(without_values))
        frame = all_keys.where(_is_shown())
    else:
        frame = _checkpoint(joined.where(_is_shown()))
    found = metrics.values
    changes = Changes(
        frame,
        counts={kind: found[kind.value] for kind in COUNTED},
        rows=found["rows"],
        live_keys=found["live_keys"],
        split_keys=found["split_keys"],
        largest=found["largest"] or 0,
        policy=policy,
        all_keys=all_keys,
    )
    changes = _without_vanished(changes, found[Kind.VANISHED.value], records)
    return replace(changes, stale_values=_stale_values(changes.frame))


def with_keys(changes: Changes, latest: DataFrame, part: DataFrame, records: Records, live_keys: int) -> Changes:
    """The changes if every row is written again and each key is where Kafka's default partitioner places it.

    Only the keys are compared. In `frame` each row to write is an INSERT; `counts` has UPDATE for those whose key is live.

    Args:
        changes: those of `with_nothing`.
        latest: the topic's keys, or those of a part outside of which every key has a row.
        part: the rows of `changes` with these keys.
        live_keys: of the whole topic.
    """
    columns = [KIND, KEY, VALUE, PARTITION, *extras(changes.frame), *ROW_HASHES]
    rows = changes.frame.select(columns)
    without_row = latest.where(IS_LIVE).join(part.where(F.col(KIND) != Kind.NULL).select(KEY), KEY, "left_anti")
    kind = Kind.DELETE if changes.policy.deletes_foreign else Kind.VANISHED
    nothing = {name: F.lit(None).cast(rows.schema[name].dataType) for name in columns[2:]}
    metrics = ObservedMetrics()
    observed = metrics.observe(without_row.select(KEY), F.count(F.lit(1)).alias("number"))
    missing = checkpoint(observed.withColumns({KIND: F.lit(kind), **nothing}).select(columns))
    number = metrics.values["number"]
    live_rows = min(live_keys - number, changes[Kind.INSERT])
    counts = {**changes.counts, Kind.INSERT: changes[Kind.INSERT] - live_rows, Kind.UPDATE: live_rows}
    if kind == Kind.DELETE:
        counts[Kind.DELETE] = number
    to_delete = replace(changes, frame=missing, counts=counts, live_keys=live_keys)
    to_delete = _without_vanished(to_delete, number if kind == Kind.VANISHED else 0, records)
    return replace(to_delete, frame=rows.unionByName(to_delete.frame.select(columns)) if number else rows)


def in_part(encoded: DataFrame, latest: DataFrame, records: Records, policy: Policy, rows: int, live_keys: int) -> Changes:
    """The changes to a part of the topic, if the rest of the topic is known to be equal to its rows and the policy is complete.

    Unchanged keys are not counted here, but computed from the totals: also in such a part most keys are unchanged.

    Args:
        encoded: the rows of the part.
        latest: the topic's keys of the part.
        rows: of the whole SELECT.
        live_keys: of the whole topic.
    """
    metrics = ObservedMetrics()
    counted = [kind for kind in COUNTED if kind.is_shown]
    different = _joined(encoded, latest, policy).where(_is_shown())
    frame = _checkpoint(metrics.observe(different, *_counts(*counted, Kind.VANISHED), _largest()))
    found = metrics.values
    deleted = found[Kind.DELETE.value] + found[Kind.VANISHED.value]
    counts = {kind: found[kind.value] for kind in counted}
    counts |= {Kind.UNCHANGED: live_keys - counts[Kind.UPDATE] - deleted, Kind.KEPT: 0}
    changes = Changes(frame, counts, rows, live_keys, 0, found["largest"] or 0, policy)
    return _without_vanished(changes, found[Kind.VANISHED.value], records)


def _joined(encoded: DataFrame, latest: DataFrame | None, policy: Policy) -> DataFrame:
    """Each key's row and last record, one of which may be missing, and the kind."""
    rows = _with_copies(encoded, policy)
    if latest is not None:
        if not policy.deletes:
            latest = latest.drop(STALE)
        joined = rows.join(latest, KEY, "full_outer").withColumn(KIND, kind_of(policy))
        if STALE not in joined.columns:
            return joined
        # The row is written again after the tombstones: a reader of all partitions must not end with a tombstone.
        is_republished = (F.col(KIND) == Kind.UNCHANGED) & (F.size(STALE) > 0)
        return joined.withColumn(KIND, F.when(is_republished, Kind.REPUBLISH).otherwise(F.col(KIND)))
    nothing = {
        PARTITION: F.lit(None).cast("int"),
        IS_LIVE: F.lit(False),
        IS_SPLIT: F.lit(False),
        **dict.fromkeys(HASHES, F.lit(None).cast("long")),
    }
    return rows.withColumns(nothing).withColumn(KIND, kind_of(policy))


def _with_copies(encoded: DataFrame, policy: Policy) -> DataFrame:
    """Add the number of rows that share a key; if the latest row is taken, older rows are removed first."""
    by_key = Window.partitionBy(KEY)
    if policy.takes_latest:
        newest = F.max(F.when(~F.col(NULL_KEY), F.col(SEQUENCE))).over(by_key)
        encoded = (
            encoded.withColumn("newest", newest)
            .where(F.col(NULL_KEY) | (F.col(SEQUENCE) == F.col("newest")))
            .drop("newest", SEQUENCE)
        )
    return encoded.withColumn(COPIES, F.count(F.lit(1)).over(by_key))


def _without_vanished(changes: Changes, vanished: int, records: Records) -> Changes:
    """Decide for each VANISHED key whether it is DELETE, or FOREIGN because the model's key format can't have written it."""
    if not vanished:
        return changes
    is_vanished = F.col(KIND) == Kind.VANISHED
    marked = records.mark_foreign(changes.frame, is_vanished)
    decided = F.when(F.col("foreign"), Kind.FOREIGN).otherwise(Kind.DELETE)
    metrics = ObservedMetrics()
    kind = F.when(is_vanished, decided).otherwise(F.col(KIND))
    frame = _checkpoint(metrics.observe(marked.withColumn(KIND, kind), *_counts(Kind.FOREIGN)))
    foreign = metrics.values[Kind.FOREIGN.value]
    counts = {**changes.counts, Kind.FOREIGN: foreign, Kind.DELETE: changes[Kind.DELETE] + vanished - foreign}
    return replace(changes, frame=frame, counts=counts)


def _stale_values(frame: DataFrame) -> int:
    """How many old values the keys that are written have in other partitions."""
    if STALE not in frame.columns:
        return 0
    is_written = F.col(KIND).isin(*WRITTEN) & F.col(STALE).isNotNull()
    [found] = frame.where(is_written).agg(F.sum(F.size(STALE)).alias("number")).collect()
    return found["number"] or 0


def _largest() -> Column:
    kinds = ", ".join(f"'{kind}'" for kind in (Kind.INSERT, Kind.UPDATE, Kind.REPUBLISH))
    return F.expr(f"max(CASE WHEN {KIND} IN ({kinds}) THEN {SIZE} END) AS largest")


def _counts(*kinds: Kind) -> list[Column]:
    return [F.expr(f"count_if({KIND} = '{kind}') AS {kind}") for kind in kinds]


def _is_shown() -> Column:
    kinds = ", ".join(f"'{kind}'" for kind in NOT_SHOWN)
    return F.expr(f"{KIND} NOT IN ({kinds})")


def _checkpoint(frame: DataFrame) -> DataFrame:
    of_topic = [name for name in (*HASHES, STALE) if name in frame.columns]
    return checkpoint(frame.select(KIND, KEY, VALUE, PARTITION, *extras(frame), *of_topic, *ROW_HASHES))
