"""Shared by the benchmarks: figures, a Spark with the Kafka jars, and wall-clock and CPU time of a query."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyspark
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka.java import fetch_jars
from dbt.adapters.upsert_kafka.spark.settings import (
    DRIVER_SETTINGS,
    INSIDE_SPARK,
    JVM_OPTIONS,
    SESSION_SETTINGS,
    command_jvm_options,
    kafka_jars,
    local_settings,
)

_warehouse = tempfile.TemporaryDirectory(prefix="upsert-kafka-bench-warehouse-")


@dataclass(frozen=True)
class Figure:
    """The times of one contender for one piece of work, compared with those of another contender."""

    work: str
    contender: str
    values: list[float]
    unit: str = "s"
    base: float | None = None
    """The median of the contender to compare with."""
    goal: float | None = None
    """The largest ratio to the base that is accepted."""
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def ratio(self) -> float | None:
        return None if self.base is None else self.median / self.base


class Taken(NamedTuple):
    """Seconds of one run."""

    clock: float
    processor: float
    """CPU time of the tasks. Other load on the machine changes it little."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def timed(work: Callable[..., object], *arguments: object, **keywords: object) -> float:
    """Wall-clock seconds of a call."""
    start = time.perf_counter()
    work(*arguments, **keywords)
    return time.perf_counter() - start


def figures(work: str, times: Mapping[str, list[float]], base: str, goals: Mapping[str, float], unit: str = "s") -> list[Figure]:
    """One figure for each contender, compared with `base`."""
    median = statistics.median(times[base])
    return [Figure(work, name, values, unit, median, goals.get(name)) for name, values in times.items()]


def session(master: str = "local[2]", **settings: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    jars = fetch_jars("spark-kafka", kafka_jars(pyspark.__version__), INSIDE_SPARK)
    builder = SparkSession.builder.master(master).config("spark.jars", ",".join(map(str, jars)))
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Tables of an earlier session are in no catalog, but their folders would exist, and no snapshot could be saved.
        "spark.sql.warehouse.dir": tempfile.mkdtemp(dir=_warehouse.name),
        "spark.log.level": "OFF",
        JVM_OPTIONS: command_jvm_options(),
    }
    for name, value in {**defaults, **local_settings(), **SESSION_SETTINGS, **DRIVER_SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(spark: SparkSession, frame: DataFrame) -> Taken:
    """Compute all rows of the frame without writing them."""
    return taken(spark, frame.write.format("noop").mode("overwrite").save)


def taken(spark: SparkSession, work: Callable[[], object]) -> Taken:
    """What a call takes that runs Spark jobs in this thread."""
    tracker, store = spark.sparkContext.statusTracker(), spark.sparkContext._jsc.sc().statusStore()
    before = set(tracker.getJobIdsForGroup())
    clock = timed(work)
    jobs = map(tracker.getJobInfo, set(tracker.getJobIdsForGroup()) - before)
    stages = [stage for job in jobs if job is not None for stage in job.stageIds]
    return Taken(clock, sum(map(_processor_seconds, (store.lastStageAttempt(stage) for stage in stages))))


def _processor_seconds(stage: Any) -> float:
    return float(stage.executorCpuTime() / 1e9)
