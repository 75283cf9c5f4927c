"""What the benchmarks share: a Spark with the Kafka jars, and the time that a query takes by the clock and of the processors."""

from __future__ import annotations

import os
import sys
import time
from typing import NamedTuple

import pyspark
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka.java import fetch_jars
from dbt.adapters.upsert_kafka.session import INSIDE_SPARK, kafka_jars


class Taken(NamedTuple):
    """Seconds that one run took."""

    clock: float
    processor: float
    """Of the tasks; a busy machine changes it little."""


def session(cores: int = 2, **settings: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    jars = fetch_jars("spark-kafka", kafka_jars(pyspark.__version__), INSIDE_SPARK)
    builder = SparkSession.builder.master(f"local[{cores}]").config("spark.jars", ",".join(map(str, jars)))
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    for name, value in {**defaults, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(spark: SparkSession, frame: DataFrame) -> Taken:
    """Compute all rows of the frame and drop them."""
    tracker, store = spark.sparkContext.statusTracker(), spark.sparkContext._jsc.sc().statusStore()
    before, start = set(tracker.getJobIdsForGroup()), time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    clock = time.perf_counter() - start
    stages = [stage for job in set(tracker.getJobIdsForGroup()) - before for stage in tracker.getJobInfo(job).stageIds]
    return Taken(clock, sum(store.lastStageAttempt(stage).executorCpuTime() for stage in stages) / 1e9)
