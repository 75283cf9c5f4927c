"""Checkpoints: rows that Spark computes once and stores until the run that needs them ends.

Leaves to the callers which rows those are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dbt.adapters.events.logging import AdapterLogger
from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from dbt.adapters.upsert_kafka.spark import internals
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS

logger = AdapterLogger("upsert_kafka")


class _ThreadCheckpoints(threading.local):
    """The checkpoints of this thread's run; dbt runs each model in one thread."""

    def __init__(self) -> None:
        self.frames: list[DataFrame] = []


_checkpoints = _ThreadCheckpoints()


def checkpoint(frame: DataFrame) -> DataFrame:
    """Compute and store the rows now; outside of `release_checkpoints` they stay until Java's garbage collection."""
    return _checkpoint(frame, eager=True)


def lazy_checkpoint(frame: DataFrame) -> DataFrame:
    """Store the rows when the next query computes them, which saves a pass. That query must read all of them.

    Metrics observed on `frame` are lost.
    """
    return _checkpoint(frame, eager=False)


def _checkpoint(frame: DataFrame, eager: bool) -> DataFrame:
    stored = frame.localCheckpoint(eager=eager)
    _checkpoints.frames.append(stored)
    return stored


@contextmanager
def release_checkpoints() -> Iterator[None]:
    """Free the checkpoints made inside, however the block ends: otherwise Spark writes them to disk during the next model."""
    outer, _checkpoints.frames = _checkpoints.frames, []
    try:
        yield
    finally:
        frames, _checkpoints.frames = _checkpoints.frames, outer
        # With Spark Connect, pyspark frees a checkpoint when its DataFrame is garbage-collected.
        for frame in frames if not is_remote() else ():
            try:
                internals.unpersist_checkpoint(frame)
            except (*SPARK_ERRORS, OSError) as error:
                # A Spark that ended stores nothing, and this error must not replace the one that ended the block.
                logger.debug(f"A checkpoint was not freed: {error!r}")
