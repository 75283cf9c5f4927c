"""Rows that are computed once and kept by Spark until the run that needs them ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dbt.adapters.events.logging import AdapterLogger
from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from dbt.adapters.upsert_kafka.sinks.failures import SPARK_ERRORS

logger = AdapterLogger("upsert_kafka")


class _Kept(threading.local):
    """What the thread's run holds; dbt runs each model in one thread."""

    def __init__(self) -> None:
        self.frames: list[DataFrame] = []


_kept = _Kept()


def hold(frame: DataFrame) -> DataFrame:
    """Compute the rows now, once and for all; outside of `until_done` they stay until Java's garbage collection."""
    return _held(frame, now=True)


def keep(frame: DataFrame) -> DataFrame:
    """The same, but the next query over the frame computes the rows, which must be one over all of them: that saves a pass.

    What is observed of the rows is lost.
    """
    return _held(frame, now=False)


def _held(frame: DataFrame, now: bool) -> DataFrame:
    held = frame.localCheckpoint(eager=now)
    _kept.frames.append(held)
    return held


@contextmanager
def until_done() -> Iterator[None]:
    """Give the memory of what is held inside back at once: the next model would push it out to disk, which takes its time."""
    outer, _kept.frames = _kept.frames, []
    try:
        yield
    finally:
        held, _kept.frames = _kept.frames, outer
        for frame in held if not is_remote() else ():
            try:
                _blocks(frame).unpersist(False)
            except (*SPARK_ERRORS, OSError) as error:
                # A Spark that is gone keeps nothing, and what went wrong before must reach the user.
                logger.debug(f"Held rows were not given back: {error!r}")


def _blocks(frame: DataFrame) -> Any:
    """The RDD that keeps a held frame's rows; Spark has no other way to it."""
    plan: Any = frame._jdf.queryExecution().logical()
    return plan.rdd()
