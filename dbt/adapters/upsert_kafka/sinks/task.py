"""What Spark's tasks do for a transaction: first they make record batches of their rows, then others write these.

Runs in Spark's Python workers, where this package may not be installed: the driver ships this module, `protocol`, `record_batch`
and `murmur2` by value. Workers need pyarrow, which Spark's Arrow functions need anyway, and kafka-python.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from zipimport import zipimporter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from dbt.adapters.upsert_kafka.murmur2 import murmur2
from dbt.adapters.upsert_kafka.sinks.protocol import Client, Writer
from dbt.adapters.upsert_kafka.sinks.record_batch import Encoder, Identity, sizes, split, stamp

BATCHES = "partition int, task int, number int, records int, batch binary"
REPORT = "partition int, records long, bytes long, first_offset long, last_offset long"
_BATCHES = pa.schema([*((n, pa.int32()) for n in ("partition", "task", "number", "records")), ("batch", pa.binary())])
_REPORT = pa.schema([("partition", pa.int32()), *((n, pa.int64()) for n in REPORT.replace(" long", "").split(", ")[1:])])
GATHERED_BYTES = 8 * 1024 * 1024
"""Rows of a task are gathered to this, so that each partition gets batches worth sending."""

Function = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


class SecondAttemptError(Exception):
    """Spark started a task again that may have written already."""


@dataclass(frozen=True)
class Assignment:
    """What every task that writes is told."""

    identity: Identity
    topic: str
    arguments: Mapping[str, Any]
    patience: float

    def __repr__(self) -> str:
        # The arguments may hold a password.
        return f"Assignment({self.identity}, {self.topic!r})"


def encoder(partitions: int, batch_bytes: int, compression: str) -> Function:
    """The function for `mapInArrow`: rows of `key, value, partition[, headers][, timestamp]` to rows of BATCHES.

    A record whose partition is null goes where Java's producer would put it.
    """

    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        build, row, number = Encoder(compression), task, 0
        _forget_zips()
        for table in _gather(batches):
            made = []
            for partition, rows in _by_partition(table, places(table, partitions, row)):
                for records, batch in _encode(build, rows, batch_bytes):
                    made.append({"partition": partition, "task": task, "number": number, "records": records, "batch": batch})
                    number += 1
            row += table.num_rows
            yield pa.RecordBatch.from_pylist(made, schema=_BATCHES)

    return encode


def writer(assignment: Assignment) -> Function:
    """The function for `mapInArrow`: rows of BATCHES, all those of a partition in one task and in order, to rows of REPORT."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        # Spark counts the attempts of a repeated stage from zero again. They all send the same batches in the same order, so
        # that the broker knows each for a repetition, or refuses it as out of order.
        if context is None or context.attemptNumber() > 0:
            raise SecondAttemptError("second attempt of a task in a transaction")
        _forget_zips()
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        with Client(assignment.arguments, assignment.patience, assignment.topic) as client:
            out = Writer(client, assignment.identity, assignment.topic)
            _write(out, first, assignment.identity)
            for batch in filled:
                _write(out, batch, assignment.identity)
            out.flush()
            reports = [(lane.partition, lane.records, lane.size, lane.first_offset, lane.last_offset) for lane in out.lanes]
        yield pa.RecordBatch.from_pylist([dict(zip(_REPORT.names, r, strict=True)) for r in reports], schema=_REPORT)

    return write


def _forget_zips() -> None:
    """Spare the worker's next task 0.1 s: before each, Spark has Python list again every zip that it once imported from.

    PySpark's own zip counts for each of its packages. An import that needs one finds it again.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def places(table: pa.Table, partitions: int, row: int = 0) -> np.ndarray:
    """The partition of every record: as it is given, else by the key, else in turn, beginning with that of `row`."""
    given = table.column("partition")
    in_turn = (np.arange(table.num_rows) + row) % partitions
    if given.null_count:
        keys = _chunk(table.column("key"))
        hashed = np.where(keys.is_valid(), (murmur2(keys.fill_null(b"")) & 0x7FFFFFFF) % partitions, in_turn)
        return np.where(given.is_valid(), given.fill_null(0).to_numpy(), hashed)
    return given.to_numpy()


def _gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            gathered.append(batch)
            size += batch.nbytes
        if size >= GATHERED_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, size = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _by_partition(table: pa.Table, partitions: np.ndarray) -> Iterator[tuple[int, pa.Table]]:
    table = table.drop_columns("partition").combine_chunks()
    present, starts = np.unique(np.sort(partitions), return_index=True)
    if len(present) > 1:
        # Stable: rows of a key keep their order.
        table = table.take(pa.array(np.argsort(partitions, kind="stable")))
    for partition, start, end in zip(present, starts, [*starts[1:], len(partitions)], strict=True):
        yield int(partition), table.slice(start, end - start)


def _encode(encoder: Encoder, rows: pa.Table, batch_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Batches of one partition's rows, each with its number of records."""
    keys, values = (_chunk(rows.column(name)) for name in ("key", "value"))
    headers = _chunk(rows.column("headers")) if "headers" in rows.column_names else None
    now = int(time.time() * 1000)
    times = None
    if "timestamp" in rows.column_names:
        times = _chunk(rows.column("timestamp")).cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        times = pc.fill_null(times, now)
    for start, end in split(sizes(keys, values, headers), batch_bytes):
        size = end - start
        batch = encoder.encode(
            now if times is None else times.slice(start, size),
            keys.slice(start, size),
            values.slice(start, size),
            None if headers is None else headers.slice(start, size),
        )
        yield size, batch


def _write(out: Writer, batches: pa.RecordBatch, identity: Identity) -> None:
    partitions, records = (batches.column(name).to_pylist() for name in ("partition", "records"))
    out.own(sorted(set(partitions)))
    for partition, count, batch in zip(partitions, records, batches.column("batch"), strict=True):
        out.write(partition, count, stamp(batch.as_buffer(), identity, out.next_sequence(partition)))


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
