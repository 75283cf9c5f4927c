"""Counts the Spark jobs, stages and generated classes of one model's run. Counts do not depend on the load of the machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from benchmarks.measured import Figure, say, session
from benchmarks.publishing import AT_LEAST_ONCE, CHANGED, EXACTLY_ONCE, FIRST, PARTITIONS, REFRESH, UNCHANGED, new_topic
from benchmarks.tables import generate
from tests.services import Cluster
from tests.tables import Table

SIZES = (1_000, 200_000)
"""Without and with a snapshot."""


class Counts(NamedTuple):
    jobs: int
    stages: int
    classes: int
    """Compiled by Spark's code generation; those that it finds in its cache are not counted."""


def measure(arguments: argparse.Namespace, folder: Path) -> list[Figure]:
    found = []
    with Cluster() as cluster:
        spark = session()
        for rows in SIZES:
            table = generate(spark, folder, "narrow", rows)
            for guarantee in (AT_LEAST_ONCE, EXACTLY_ONCE):
                with new_topic(cluster.bootstrap_servers) as topic:
                    model = Table(spark, cluster.bootstrap_servers, topic, "benchmark", PARTITIONS)
                    publish = partial(model.publish, sink_delivery_guarantee=guarantee)
                    runs = {
                        FIRST: partial(publish, table.first),
                        UNCHANGED: partial(publish, table.first),
                        CHANGED: partial(publish, table.changed),
                        REFRESH: partial(publish, table.changed, full_refresh=True),
                    }
                    for work, run in runs.items():
                        counts = counted(spark, run)
                        say(f"  {rows:9,} rows {work:12} {guarantee:14} {counts}")
                        named = counts._asdict().items()
                        found += [
                            Figure(f"{work}, {rows:,} rows", f"{guarantee}: {name}", [number], "") for name, number in named
                        ]
        spark.stop()
    return found


def counted(spark: SparkSession, run: Callable[[], object]) -> Counts:
    """What a call makes Spark do."""
    before = _so_far(spark)
    run()
    return Counts(*(now - then for now, then in zip(_so_far(spark), before, strict=True)))


def _so_far(spark: SparkSession) -> Counts:
    java: Any = spark.sparkContext._jvm
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    compilations = java.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    return Counts(scheduler.numTotalJobs(), scheduler.nextStageId(), compilations.getCount())
