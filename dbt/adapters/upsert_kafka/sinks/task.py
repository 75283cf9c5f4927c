"""What a Spark task does in a transaction: take its rows as Arrow, write them as record batches, report where they went.

Runs in Spark's Python workers, where this package may not be installed: the driver ships this module, `protocol` and
`record_batch` by value. Workers need pyarrow, which Spark's Arrow functions need anyway, and kafka-python.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from dbt.adapters.upsert_kafka.sinks.protocol import Client, Writer
from dbt.adapters.upsert_kafka.sinks.record_batch import Encoder, Identity, sizes, split

REPORT = "partition int, records long, bytes long, first_offset long, last_offset long"
GATHERED_BYTES = 8 * 1024 * 1024
"""Rows of a task that owns several partitions are gathered to this, so that each partition gets batches worth sending."""
SHAPES = 997


class SecondAttemptError(Exception):
    """Spark started a task again that may have written already."""


@dataclass(frozen=True)
class Assignment:
    """What every task of one transaction is told."""

    identity: Identity
    topic: str
    arguments: Mapping[str, Any]
    patience: float
    batch_bytes: int
    compression: str

    def __repr__(self) -> str:
        # The arguments may hold a password.
        return f"Assignment({self.identity}, {self.topic!r})"


def writer(assignment: Assignment) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The function for `mapInArrow`: rows of `key, value, partition[, headers][, timestamp]` to rows of REPORT."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is None or context.attemptNumber() > 0:
            raise SecondAttemptError("second attempt of a task in a transaction")
        tables = _gather(batches)
        first = next(tables, None)
        if first is None:
            return
        # Spark counts the attempts of a repeated stage from zero again. Two attempts can't both write a partition: the first
        # batch of each has another number of records, so the broker takes the second for a gap and not for a repetition.
        shape = 1 + context.taskAttemptId() % SHAPES
        with Client(assignment.arguments, assignment.patience) as client:
            out = Writer(client, assignment.identity, assignment.topic)
            encoder = Encoder(assignment.identity, assignment.compression)
            for table in itertools.chain([first], tables):
                _write(out, table, encoder, assignment.batch_bytes, shape)
            out.flush()
            rows = [[lane.partition, lane.records, lane.size, lane.first_offset, lane.last_offset] for lane in out.lanes]
        columns = ["partition", "records", "bytes", "first_offset", "last_offset"]
        yield pa.RecordBatch.from_pylist(
            [dict(zip(columns, row, strict=True)) for row in rows],
            schema=pa.schema([("partition", pa.int32()), *((name, pa.int64()) for name in columns[1:])]),
        )

    return write


def _gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            gathered.append(batch)
        if sum(b.nbytes for b in gathered) >= GATHERED_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered)


def _write(out: Writer, table: pa.Table, encoder: Encoder, batch_bytes: int, shape: int) -> None:
    partitions = table.column("partition").to_numpy()
    present = [int(p) for p in np.unique(partitions)]
    out.own(present)
    if len(present) > 1:
        # Stable: rows of a key keep their order.
        table = table.take(pa.array(np.argsort(partitions, kind="stable")))
    starts = np.searchsorted(np.sort(partitions), present)
    for partition, start, end in zip(present, starts, [*starts[1:], len(partitions)], strict=True):
        _write_partition(out, partition, table.slice(start, end - start), encoder, batch_bytes, shape)


def _write_partition(out: Writer, partition: int, table: pa.Table, encoder: Encoder, batch_bytes: int, shape: int) -> None:
    table = table.combine_chunks()
    keys, values = (_chunk(table.column(name)) for name in ("key", "value"))
    headers = _chunk(table.column("headers")) if "headers" in table.column_names else None
    now = int(time.time() * 1000)
    times = None
    if "timestamp" in table.column_names:
        times = _chunk(table.column("timestamp")).cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        times = pc.fill_null(times, now)
    is_first = out.next_sequence(partition) == 0
    for start, end in split(sizes(keys, values, headers), batch_bytes, shape if is_first else None):
        size = end - start
        payload = encoder.encode(
            out.next_sequence(partition),
            now if times is None else times.slice(start, size),
            keys.slice(start, size),
            values.slice(start, size),
            None if headers is None else headers.slice(start, size),
        )
        out.write(partition, size, payload)


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
