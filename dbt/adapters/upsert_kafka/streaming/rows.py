"""The messages of one micro-batch, computed completely and checked: the last row of each key, or events as they are.

A batch that a check refuses is not written. Leaves to `batches` how messages are delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint
from dbt.adapters.upsert_kafka.spark.metrics import ObservedMetrics
from dbt.adapters.upsert_kafka.sql import quote_identifier
from dbt.adapters.upsert_kafka.streaming.plan import StreamPlan

PEERS = "peers"
NULL_COLUMN = "null_column_{}"
SMALL_RECORDS, SMALL_BYTES = 20_000, 8 * 1024 * 1024
"""The driver writes such a batch itself: Spark's tasks in Python would take seconds to start."""
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

    @property
    def number(self) -> int:
        return self.counts.written + self.counts.deleted

    @property
    def is_small(self) -> bool:
        """Whether the driver may write the messages itself. They are counted after joins and explode."""
        return self.size is not None and self.number <= SMALL_RECORDS and self.size <= SMALL_BYTES


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
    rows, kept = ObservedMetrics(), ObservedMetrics()
    keyed = _observed(rows, frame, request).where(~F.col(NULL_KEY))
    counted = kept.observe(
        keyed,
        F.count("*").alias("written"),
        F.count_if(F.col(KEY).isNotNull() & F.col(VALUE).isNull()).alias("tombstones"),
        *_sizes(keyed),
    )
    records = checkpoint(counted.select(KEY, VALUE, _no_partition(), *extras(counted)))
    found, before = kept.values, rows.values
    _raise(request, _broken(before, request))
    counts = Counts(1, found["written"], dropped=before["nulls"])
    return BatchRecords(records, counts, found["largest"] or 0, found["size"] or 0, found["tombstones"])


def last_per_key(frame: DataFrame, plan: StreamPlan, request: Request) -> BatchRecords:
    """The last row of each key of the batch, for an `upsert_kafka` model. Rows that meet `delete_when` are tombstones.

    Raises:
        GuardError: rows without a key or a value, that violate a constraint, or of which none is the last.
    """
    rows, kept = ObservedMetrics(), ObservedMetrics()
    options = request.options
    keyed = _observed(rows, frame, request).where(~F.col(NULL_KEY))
    is_deleted = F.col(IS_DELETED)
    last = kept.observe(
        keyed if plan.is_unique else _last_rows(keyed),
        F.count_if(~is_deleted).alias("written"),
        F.count_if(is_deleted).alias("deleted"),
        F.count_if(~is_deleted & F.col(VALUE).isNull()).alias("null_values"),
        *_sizes(keyed),
        (F.lit(0) if plan.is_unique else F.count_if(F.col(PEERS) > 1)).alias("duplicates"),
    )
    if options.sink_ignore_retraction:
        last = last.where(~is_deleted)
    value = F.when(~is_deleted, F.col(VALUE)).alias(VALUE)
    records = checkpoint(last.select(KEY, value, _no_partition(), *extras(last)))
    found, before = kept.values, rows.values
    _raise(request, _broken(before, request) + _unclear(found, plan, request))
    deleted = 0 if options.sink_ignore_retraction else found["deleted"]
    counts = Counts(1, found["written"], deleted, before["nulls"])
    return BatchRecords(records, counts, found["largest"] or 0, found["size"] or 0)


def _observed(metrics: ObservedMetrics, frame: DataFrame, request: Request) -> DataFrame:
    nulls = [F.count_if(NULL_COLUMN.format(i)).alias(f"c{i}") for i in range(len(request.not_null))]
    return metrics.observe(frame, F.count_if(NULL_KEY).alias("nulls"), *nulls)


def _sizes(frame: DataFrame) -> list[Column]:
    whole = size()
    if HEADERS in frame.columns:
        lengths = F.transform(HEADERS, lambda header: F.octet_length(header["key"]) + _length(header["value"]))
        whole += F.coalesce(F.aggregate(lengths, F.lit(0), lambda sum, length: sum + length), F.lit(0))
    return [F.max(size()).alias("largest"), F.sum(whole).alias("size")]


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
