"""The messages of one micro-batch, computed completely and checked: the last row of each key, or events as they are.

A batch that a check refuses is not written. Leaves to `batches` how messages are delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.errors import GuardError, count_of
from dbt.adapters.upsert_kafka.formats.records import (
    HEADERS,
    IS_DELETED,
    KEY,
    NULL_KEY,
    PARTITION,
    SEQUENCE,
    VALUE,
    Records,
    extras,
    size,
)
from dbt.adapters.upsert_kafka.publish import guards
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint, lazy_checkpoint
from dbt.adapters.upsert_kafka.spark.internals import tasks_of_checkpoint
from dbt.adapters.upsert_kafka.spark.metrics import ObservedMetrics
from dbt.adapters.upsert_kafka.sql import quote_identifier
from dbt.adapters.upsert_kafka.streaming.plan import StreamPlan

if TYPE_CHECKING:
    import pyarrow as pa

PEERS = "peers"
NULL_COLUMN = "null_column_{}"
SMALL_RECORDS, SMALL_BYTES = 20_000, 8 * 1024 * 1024
"""The driver writes such a batch itself: Spark's tasks in Python would take seconds to start."""
COLLECTED_RECORDS, COLLECTED_BYTES = 2 * SMALL_RECORDS, 1024
"""The query that computes a batch returns no more messages than this, and none that is larger."""
ROW_IN_TASK = (1 << 33) - 1
"""The bits of `monotonically_increasing_id` that count the rows of a task."""
NOT_WRITTEN = "Nothing of this batch was written; the next run repeats it."


@dataclass
class Counts:
    """What the batches of a stream have done since it was started."""

    batches: int = 0
    written: int = 0
    """Messages with a value, or events."""
    deleted: int = 0
    """Tombstones."""
    dropped: int = 0
    """Rows without a key."""
    repeated: int = 0
    """Batches that were in the topic already, and were computed again only for Spark's state."""
    bytes: int = 0


@dataclass(frozen=True)
class BatchRecords:
    """The messages of a batch, which Spark has computed and stores."""

    records: DataFrame
    counts: Counts
    largest: int = 0
    """Bytes of the largest key and value together."""
    size: int | None = None
    """Bytes of all keys, values and headers; None if they are not known."""
    tombstones: int = 0
    """Events with a key and without a value."""
    collected: pa.Table | None = None
    """The messages, or a part of them if they are many or large."""

    @property
    def number(self) -> int:
        return self.counts.written + self.counts.deleted

    @property
    def is_small(self) -> bool:
        """Whether the driver may write the messages itself. They are counted after joins and explode."""
        return self.size is not None and self.number <= SMALL_RECORDS and self.size <= SMALL_BYTES

    def rows(self) -> pa.Table:
        """All messages of a small batch."""
        if self.collected is not None and self.collected.num_rows == self.number:
            return self.collected
        return self.records.toArrow()


def encode(plan: StreamPlan, layout: Records, request: Request) -> DataFrame:
    """The columns that a batch needs, encoded inside the streaming plan."""
    more: dict[str, Column] = {
        NULL_COLUMN.format(i): F.col(quote_identifier(name)).isNull() for i, name in enumerate(request.not_null)
    }
    if plan.order is not None:
        more[SEQUENCE] = plan.order
    return layout.encode(plan.rows, request.options, more)


def events(frame: DataFrame, request: Request) -> BatchRecords:
    """Every row of the batch as an event, for a `kafka` model that appends.

    Raises:
        GuardError: rows without a key, or that violate a constraint.
    """
    stored, metrics = lazy_checkpoint(frame), ObservedMetrics()
    observed = metrics.observe(
        stored,
        *_nulls(request),
        F.count_if(F.expr(f"NOT {NULL_KEY}")).alias("written"),
        F.count_if(F.expr(f"NOT {NULL_KEY} AND {KEY} IS NOT NULL AND {VALUE} IS NULL")).alias("tombstones"),
        *_sizes(frame, f"NOT {NULL_KEY}"),
    )
    columns: list[Column | str] = [KEY, VALUE, _no_partition(), *extras(frame)]
    collected = _first_rows(observed, stored, f"NOT {NULL_KEY}", columns)
    found = metrics.values
    _raise(request, _broken(found, request))
    counts = Counts(1, found["written"], dropped=found["nulls"])
    records = stored.where(f"NOT {NULL_KEY}").select(*columns)
    return BatchRecords(records, counts, found["largest"] or 0, found["size"] or 0, found["tombstones"], collected)


def last_per_key(frame: DataFrame, plan: StreamPlan, request: Request) -> BatchRecords:
    """The last row of each key of the batch, for an `upsert_kafka` model. Rows that meet `delete_when` are tombstones.

    Raises:
        GuardError: rows without a key or a value, that violate a constraint, or of which none is the last.
    """
    return _unique_rows(frame, plan, request) if plan.is_unique else _last_of_rows(frame, plan, request)


def _unique_rows(frame: DataFrame, plan: StreamPlan, request: Request) -> BatchRecords:
    """The rows of a batch that has each key once. One query computes, stores, counts and collects them."""
    stored, metrics, ignores = lazy_checkpoint(frame), ObservedMetrics(), request.options.sink_ignore_retraction
    keyed = f"NOT {NULL_KEY}"
    observed = metrics.observe(stored, *_nulls(request), *_kept(keyed), *_sizes(frame, keyed), F.lit(0).alias("duplicates"))
    condition = f"{keyed} AND NOT {IS_DELETED}" if ignores else keyed
    columns: list[Column | str] = [KEY, _value_or_tombstone(), _no_partition(), *extras(frame)]
    collected = _first_rows(observed, stored, condition, columns)
    found = metrics.values
    _raise(request, _broken(found, request) + _unclear(found, plan, request))
    counts = Counts(1, found["written"], 0 if ignores else found["deleted"], found["nulls"])
    records = stored.where(condition).select(*columns)
    return BatchRecords(records, counts, found["largest"] or 0, found["size"] or 0, collected=collected)


def _first_rows(observed: DataFrame, stored: DataFrame, condition: str, columns: Sequence[Column | str]) -> pa.Table:
    """The rows that meet the condition, as far as they are few and small. The query computes and stores all rows."""
    # A batch without events may have no task.
    most = COLLECTED_RECORDS // max(1, tasks_of_checkpoint(stored)) + 1
    is_first = f"(monotonically_increasing_id() & {ROW_IN_TASK}) < {most}"
    return observed.where(condition).where(_whole_size(stored) <= COLLECTED_BYTES).where(is_first).select(*columns).toArrow()


def _last_of_rows(frame: DataFrame, plan: StreamPlan, request: Request) -> BatchRecords:
    """The last row of each key of a batch that may have several."""
    rows, kept = ObservedMetrics(), ObservedMetrics()
    keyed = rows.observe(frame, *_nulls(request)).where(f"NOT {NULL_KEY}")
    last = kept.observe(
        _last_rows(keyed), *_kept("true"), *_sizes(keyed, "true"), F.count_if(F.col(PEERS) > 1).alias("duplicates")
    )
    ignores = request.options.sink_ignore_retraction
    if ignores:
        last = last.where(f"NOT {IS_DELETED}")
    records = checkpoint(last.select(KEY, _value_or_tombstone(), _no_partition(), *extras(last)))
    found, before = kept.values, rows.values
    _raise(request, _broken(before, request) + _unclear(found, plan, request))
    counts = Counts(1, found["written"], 0 if ignores else found["deleted"], before["nulls"])
    return BatchRecords(records, counts, found["largest"] or 0, found["size"] or 0)


def _nulls(request: Request) -> list[Column]:
    """Metrics of all rows: those without a key, and those with NULL in a column that has a constraint."""
    columns = [F.count_if(NULL_COLUMN.format(i)).alias(f"c{i}") for i in range(len(request.not_null))]
    return [F.count_if(NULL_KEY).alias("nulls"), *columns]


def _kept(condition: str) -> list[Column]:
    """Metrics of the messages that rows become which meet the condition."""
    return [
        F.count_if(F.expr(f"{condition} AND NOT {IS_DELETED}")).alias("written"),
        F.count_if(F.expr(f"{condition} AND {IS_DELETED}")).alias("deleted"),
        F.count_if(F.expr(f"{condition} AND NOT {IS_DELETED} AND {VALUE} IS NULL")).alias("null_values"),
    ]


def _value_or_tombstone() -> Column:
    return F.expr(f"CASE WHEN NOT {IS_DELETED} THEN {VALUE} END").alias(VALUE)


def _sizes(frame: DataFrame, condition: str) -> list[Column]:
    """Metrics of the sizes of rows that meet the condition."""
    is_counted = F.expr(condition)
    return [
        F.max(F.when(is_counted, size())).alias("largest"),
        F.sum(F.when(is_counted, _whole_size(frame))).alias("size"),
    ]


def _whole_size(frame: DataFrame) -> Column:
    """Bytes of key, value and headers."""
    if HEADERS not in frame.columns:
        return size()
    lengths = F.transform(HEADERS, lambda header: F.octet_length(header["key"]) + _length(header["value"]))
    return size() + F.coalesce(F.aggregate(lengths, F.lit(0), lambda sum, length: sum + length), F.lit(0))


def _length(value: Column) -> Column:
    return F.coalesce(F.octet_length(value), F.lit(0))


def _no_partition() -> Column:
    """Kafka's default partitioner."""
    return F.lit(None).cast("int").alias(PARTITION)


def _broken(rows: dict[str, Any], request: Request) -> list[str]:
    """Constraints and keys, as in a batch run."""
    reasons = [
        f"{count_of(rows[f'c{i}'], 'row', 'has', 'have')} NULL in '{name}', which has a not_null constraint"
        for i, name in enumerate(request.not_null)
        if rows[f"c{i}"]
    ]
    if rows["nulls"] and request.options.on_null_key != "drop":
        keyless = guards.null_keys(rows["nulls"], ", ".join(request.options.unique_key))
        reasons.append(f"{keyless}. Filter such rows in the SELECT, or set on_null_key='drop'")
    return reasons


def _unclear(kept: dict[str, Any], plan: StreamPlan, request: Request) -> list[str]:
    """Keys whose value is not clear: several last rows, or none."""
    reasons = []
    if kept["duplicates"]:
        what = "the last of their key" if plan.order is not None or request.options.sequence_by else "of one key"
        reasons.append(
            f"{kept['duplicates']} rows of a batch are equally {what} ({', '.join(request.options.unique_key)}). Make the SELECT "
            "return one row for each key and event, or add a column to sequence_by that differs between them"
        )
    if kept["null_values"]:
        reasons.append(
            f"{count_of(kept['null_values'], 'row', 'has', 'have')} NULL as the value of the message, which would delete the "
            "key. Filter such rows in the SELECT; set delete_when if the keys are to be deleted"
        )
    return reasons


def _raise(request: Request, reasons: Sequence[str]) -> None:
    if reasons:
        lines = "\n".join(f"model {request.model}: {reason}." for reason in reasons)
        raise GuardError(f"{lines} {NOT_WRITTEN}")


def _last_rows(rows: DataFrame) -> DataFrame:
    """The last row of each key, and in the column `peers` how many rows are equally the last."""
    by_key = Window.partitionBy(KEY)
    if SEQUENCE not in rows.columns:
        return rows.withColumn(PEERS, F.count("*").over(by_key))
    ordered = by_key.orderBy(F.col(SEQUENCE).desc())
    same = ordered.rangeBetween(Window.currentRow, Window.currentRow)
    return rows.withColumns({PEERS: F.count("*").over(same), "place": F.rank().over(ordered)}).where("place = 1")
