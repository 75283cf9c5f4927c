"""What Spark's tasks do for a transaction: `encoder` turns rows into record batches, `writer` writes the batches to Kafka.

Both return functions for `mapInArrow`, which run in Spark's Python workers. This package may not be installed there: the driver
ships this module, `protocol`, `writer`, `record_batch` and `murmur2` by value. Workers need kafka-python, and pyarrow as for any
Arrow UDF.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any
from zipimport import zipimporter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from dbt.adapters.upsert_kafka.sinks.murmur2 import murmur2
from dbt.adapters.upsert_kafka.sinks.protocol import Client
from dbt.adapters.upsert_kafka.sinks.record_batch import Encoder, Producer, sizes, split, stamp
from dbt.adapters.upsert_kafka.sinks.writer import PartitionState, Writer

BATCHES = "partition int, task int, number int, records int, batch binary"
"""One record batch. `task` and `number` give the order in which the batches of a partition are written."""
REPORT = "partition int, records long, bytes long, first_offset long, last_offset long, error string"
"""What a task has written to one partition, or only why it failed."""
_TYPES = {"int": pa.int32(), "long": pa.int64(), "binary": pa.binary(), "string": pa.string()}
MIN_TABLE_BYTES = 8 * 1024 * 1024
"""Arrow batches are joined until they have this size, so that the record batches of each partition are not too small."""

Function = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def _arrow_schema(columns: str) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind]) for name, kind in (column.split() for column in columns.split(", "))])


_BATCHES, _REPORT = _arrow_schema(BATCHES), _arrow_schema(REPORT)


class SecondAttemptError(Exception):
    """Spark repeated a task whose first attempt may have written records."""


@dataclass(frozen=True)
class Assignment:
    """What a task needs to write.

    Args:
        arguments: kafka-python's client arguments.
        timeout: seconds for which a request is repeated after retriable errors.
    """

    producer: Producer
    topic: str
    arguments: Mapping[str, Any]
    timeout: float

    def __repr__(self) -> str:
        # The arguments may contain a password.
        return f"Assignment({self.producer}, {self.topic!r})"


def encoder(partitions: int, batch_bytes: int, compression: str, first: int = 0) -> Function:
    """Make the function that turns rows of `key, value, partition[, headers][, timestamp]` into rows of BATCHES.

    Args:
        partitions: of the topic. A row without a partition gets the one that the Java producer would choose.
        batch_bytes: size of a record batch before compression.
        compression: Kafka's compression.type.
        first: the partition of the first row that has no key.
    """

    def encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = context.partitionId() if context else 0
        # Rows without a key go to the partitions in turn. Each task starts with another partition.
        build, row, number = Encoder(compression), task + first, 0
        _forget_zips()
        for table in _join_batches(batches):
            encoded = []
            for partition, rows in _by_partition(table, choose_partitions(table, partitions, row)):
                for records, batch in _encode(build, rows, batch_bytes):
                    encoded.append({"partition": partition, "task": task, "number": number, "records": records, "batch": batch})
                    number += 1
            row += table.num_rows
            yield pa.RecordBatch.from_pylist(encoded, schema=_BATCHES)

    return encode


def writer(assignment: Assignment) -> Function:
    """Make the function that writes rows of BATCHES and returns a row of REPORT for each partition.

    All rows of a partition must be in one task, in the order in which they are to be written.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        # This does not detect a repeated stage, for which Spark counts attempts from zero again. Its tasks send the same batches
        # in the same order, so the broker recognises each as a repetition or refuses it as out of order.
        if context is None or context.attemptNumber() > 0:
            raise SecondAttemptError(
                "Spark repeated a task that may have written; Spark's log has the error of its first attempt"
            )
        _forget_zips()
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            # A task without rows does not need a connection.
            return
        try:
            partitions = _write_all(assignment, chain([first], filled))
            reports = [{name: getattr(partition, name, None) for name in _REPORT.names} for partition in partitions]
        except Exception as error:
            # As a result, and not raised: a cluster's Spark would repeat the task, which must not write again, and report only
            # the error of the last attempt.
            reports = [{"error": f"{type(error).__module__}.{type(error).__name__}: {error}"}]
            for _ in filled:
                pass
        yield pa.RecordBatch.from_pylist(reports, schema=_REPORT)

    return write


def _write_all(assignment: Assignment, batches: Iterable[pa.RecordBatch]) -> list[PartitionState]:
    with Client(assignment.arguments, assignment.timeout, assignment.topic) as client:
        out = Writer(client, assignment.producer, assignment.topic)
        for batch in batches:
            write_batches(out, batch, assignment.producer)
        out.flush()
    return out.partitions


def _forget_zips() -> None:
    """Make the worker's next task start 0.1 s earlier.

    Before each task PySpark calls `importlib.invalidate_caches`, which reads every zip in the cache again, PySpark's own once for
    each of its packages. A later import adds a zip to the cache again.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def choose_partitions(table: pa.Table, partitions: int, row: int = 0) -> np.ndarray:
    """The partition of each row: the given one, else by the hash of the key, else in turn.

    Args:
        row: number of the table's first row, which selects the partition to start with.
    """
    given = table.column("partition")
    in_turn = (np.arange(table.num_rows) + row) % partitions
    if given.null_count:
        keys = _chunk(table.column("key"))
        hashed = np.where(keys.is_valid(), (murmur2(keys.fill_null(b"")) & 0x7FFFFFFF) % partitions, in_turn)
        return np.where(given.is_valid(), given.fill_null(0).to_numpy(), hashed)
    return given.to_numpy()


def _join_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    joined: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            joined.append(batch)
            size += batch.nbytes
        if size >= MIN_TABLE_BYTES:
            yield pa.Table.from_batches(joined)
            joined, size = [], 0
    if joined:
        yield pa.Table.from_batches(joined)


def _by_partition(table: pa.Table, partitions: np.ndarray) -> Iterator[tuple[int, pa.Table]]:
    """Split a table by the partitions of its rows, which keep their order."""
    table = table.drop_columns("partition").combine_chunks()
    present, starts = np.unique(np.sort(partitions), return_index=True)
    if len(present) > 1:
        table = table.take(pa.array(np.argsort(partitions, kind="stable")))
    for partition, start, end in zip(present, starts, [*starts[1:], len(partitions)], strict=True):
        yield int(partition), table.slice(start, end - start)


def _encode(encoder: Encoder, rows: pa.Table, batch_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Record batches of one partition's rows, each with its number of records."""
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


def write_batches(out: Writer, batches: pa.RecordBatch, producer: Producer) -> None:
    """Write rows of BATCHES."""
    partitions, records = (batches.column(name).to_pylist() for name in ("partition", "records"))
    out.add_partitions(sorted(set(partitions)))
    for partition, count, batch in zip(partitions, records, batches.column("batch"), strict=True):
        out.write(partition, count, stamp(batch.as_buffer(), producer, out.next_sequence(partition)))


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array. Most have one chunk and are not copied."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
