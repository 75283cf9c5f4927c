"""Growth of time and driver memory with the rows of the table and the length of the topic.

Runs on local-cluster with one executor process, so that the memory of the tasks is not counted.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.measured import Figure, say, session, timed
from benchmarks.publishing import AT_LEAST_ONCE, EXACTLY_ONCE, PARTITIONS, UNCHANGED, WITHOUT_SNAPSHOT, new_topic
from benchmarks.tables import generate
from dbt.adapters.upsert_kafka.publish import snapshots
from tests.services import Cluster
from tests.tables import Table

ROWS = (100_000, 300_000, 1_000_000, 3_000_000)
HUGE = 10_000_000
LENGTHS = (1, 2, 4, 8)
KEYS = 200_000


def measure(arguments: argparse.Namespace, folder: Path) -> list[Figure]:
    sizes = (*ROWS, HUGE) if arguments.huge else ROWS
    found = []
    with Cluster() as cluster:
        spark = session(master="local-cluster[1,2,2048]", **{"spark.executor.memory": "2g", "spark.driver.memory": "1g"})
        servers = cluster.bootstrap_servers
        _publish_once(spark, servers, folder)
        for rows in sizes:
            table = generate(spark, folder, "narrow", rows)
            for guarantee in (AT_LEAST_ONCE, EXACTLY_ONCE):
                with new_topic(servers) as topic:
                    model = Table(spark, servers, topic, "benchmark", PARTITIONS)
                    for work in ("first load", "unchanged"):
                        seconds = timed(model.publish, table.first, sink_delivery_guarantee=guarantee)
                        say(f"  {rows:12,} rows {work:12} {guarantee:14} {seconds:6.2f} s")
                        found.append(Figure(f"{work}, {guarantee}", f"{rows:,} rows", [seconds / rows * 1e6], "µs per row"))
            memory = _driver_memory(spark)
            say(f"  {rows:12,} rows: peak memory of the driver {memory:.0f} MB")
            found.append(Figure("driver's memory, at most so far", f"{rows:,} rows", [memory], "MB"))
        table = generate(spark, folder, "narrow", KEYS)
        with new_topic(servers) as topic:
            model = Table(spark, servers, topic, "benchmark", PARTITIONS)
            written = 0
            for length in LENGTHS:
                while written < length:
                    model.publish(table.first, full_refresh=written > 0)
                    written += 1
                for work, version in ((UNCHANGED, table.first), (WITHOUT_SNAPSHOT, table.changed)):
                    if work == WITHOUT_SNAPSHOT:
                        snapshots.drop(spark, model.relation)
                    seconds = timed(model.publish, version)
                    say(f"  {KEYS:,} keys, a topic of {length * KEYS:,} records: {work} {seconds:6.2f} s")
                    found.append(
                        Figure(f"{work}, {KEYS:,} keys", f"a topic of {length * KEYS:,} records", [seconds], note=f"{length}x")
                    )
        spark.stop()
    return found


def _publish_once(spark: SparkSession, servers: str, folder: Path) -> None:
    """Publish small tables, not measured, to warm up."""
    table = generate(spark, folder, "wide", 20_000)
    for guarantee in (AT_LEAST_ONCE, EXACTLY_ONCE):
        with new_topic(servers) as topic:
            model = Table(spark, servers, topic, "benchmark", PARTITIONS)
            model.publish(table.first, sink_delivery_guarantee=guarantee)
            model.publish(table.first, sink_delivery_guarantee=guarantee)


def _driver_memory(spark: SparkSession) -> float:
    """Peak resident memory of the driver's JVM and of this process, in MB."""
    gateway: Any = spark.sparkContext._gateway
    texts = [Path(f"/proc/{process}/status").read_text() for process in (gateway.proc.pid, "self")]
    return sum(int(kilobytes) for text in texts for kilobytes in re.findall(r"VmHWM:\s+(\d+) kB", text)) / 1024
