"""Where a run's time goes, warm: in Spark's jobs, between them, and the CPU time of the tasks.

Between the jobs the driver plans queries, asks Kafka and writes state record and catalog. A task that waits for the broker takes
time in a job, but no CPU time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from benchmarks.measured import Figure, say, session, timed
from benchmarks.publishing import (
    AT_LEAST_ONCE,
    BARE,
    CHANGED,
    EXACTLY_ONCE,
    FIRST,
    PARTITIONS,
    REFRESH,
    SMALL,
    UNCHANGED,
    WITHOUT_SNAPSHOT,
    bare,
    new_topic,
)
from benchmarks.tables import generate
from dbt.adapters.upsert_kafka.publish import snapshots
from tests.services import Cluster
from tests.tables import Table

WARM_UP = 3
"""Rounds that are not measured: the JVM compiles code for longer than one round."""


class Profile(NamedTuple):
    """Seconds of one run."""

    clock: float
    in_jobs: float
    between_jobs: float
    processor: float
    """CPU time of the tasks."""


def measure(arguments: argparse.Namespace, folder: Path) -> list[Figure]:
    found = []
    with Cluster() as cluster:
        # Spark forgets stages after 1,000.
        spark = session(**{"spark.ui.retainedStages": "100000", "spark.ui.retainedJobs": "100000"})
        for rows in (SMALL, arguments.rows):
            profiles: dict[str, list[Profile]] = {}
            table = generate(spark, folder, "narrow", rows)
            for number in range(WARM_UP + arguments.rounds):
                with new_topic(cluster.bootstrap_servers) as topic:
                    sink = {BARE: partial(bare, table.first, cluster.bootstrap_servers, topic)}
                    _add(profiles, spark, sink, number >= WARM_UP)
                for guarantee in (AT_LEAST_ONCE, EXACTLY_ONCE):
                    with new_topic(cluster.bootstrap_servers) as topic:
                        model = Table(spark, cluster.bootstrap_servers, topic, "benchmark", PARTITIONS)
                        publish = partial(model.publish, sink_delivery_guarantee=guarantee)
                        works: dict[str, Callable[[], object]] = {
                            FIRST: partial(publish, table.first),
                            UNCHANGED: partial(publish, table.first),
                            CHANGED: partial(publish, table.changed),
                            REFRESH: partial(publish, table.changed, full_refresh=True),
                            WITHOUT_SNAPSHOT: partial(_without_snapshot, model, partial(publish, table.first)),
                        }
                        named = {f"{work}, {guarantee}": run for work, run in works.items()}
                        _add(profiles, spark, named, number >= WARM_UP)
            for work, several in profiles.items():
                for part in Profile._fields:
                    values = [getattr(profile, part) for profile in several]
                    found.append(Figure(f"{work}, {rows:,} rows", part.replace("_", " "), values))
        spark.stop()
    return found


def _without_snapshot(model: Table, publish: Callable[[], object]) -> None:
    snapshots.drop(model.spark, model.relation)
    publish()


def _add(
    profiles: dict[str, list[Profile]], spark: SparkSession, works: Mapping[str, Callable[[], object]], is_measured: bool
) -> None:
    for work, run in works.items():
        profile = profiled(spark, run)
        say(f"  {work:45} " + "  ".join(f"{name} {value:5.2f}" for name, value in profile._asdict().items()))
        if is_measured:
            profiles.setdefault(work, []).append(profile)


def profiled(spark: SparkSession, run: Callable[[], object]) -> Profile:
    """What a call takes that runs Spark jobs in this thread."""
    tracker, store = spark.sparkContext.statusTracker(), spark.sparkContext._jsc.sc().statusStore()
    before = set(tracker.getJobIdsForGroup())
    clock = timed(run)
    jobs: list[Any] = [store.job(number) for number in set(tracker.getJobIdsForGroup()) - before]
    times = sorted((_seconds(job.submissionTime()), _seconds(job.completionTime())) for job in jobs)
    in_jobs, last = 0.0, 0.0
    for begin, end in times:
        in_jobs += max(0.0, end - max(begin, last))
        last = max(last, end)
    stages = [job.stageIds().apply(i) for job in jobs for i in range(job.stageIds().size())]
    processor = sum(store.lastStageAttempt(stage).executorCpuTime() / 1e9 for stage in stages)
    return Profile(clock, in_jobs, clock - in_jobs, processor)


def _seconds(time: Any) -> float:
    return float(time.get().getTime() / 1000)
