"""How fast a model's first load is, against Spark's own Kafka sink as anybody would call it, in one run on one broker.

    python -m benchmarks.delivery [--rows 1000000] [--rounds 5]

`bare` encodes the rows as JSON and writes them, nothing checked. The others are what `dbt run` does on an empty topic: encode,
compute once, look for duplicate and null keys, place, write, expose the view. The ways take turns, so that a busy moment of the
machine falls on all of them; only the ratios of one run mean something.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable

from kafka import KafkaAdminClient
from pyspark.sql import DataFrame

from benchmarks.measured import session
from tests.services import Cluster
from tests.tables import Table

PARTITIONS = 4
BARE = "bare"
GOALS = {"at-least-once": 1.25, "exactly-once": 2.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with Cluster() as cluster:
        spark = session()
        rows = spark.range(0, arguments.rows, 1, 2 * PARTITIONS).selectExpr(
            "id", "concat('name of ', id) AS name", "id * 7 AS amount", "'a city' AS city", "id % 31 AS day", "id / 8 AS share"
        )
        load = os.getloadavg()[0]
        times = _measure(_ways(rows, cluster.bootstrap_servers), arguments.rounds, cluster.bootstrap_servers)
        spark.stop()
    bare = statistics.median(times[BARE])
    for way, seconds in times.items():
        median = statistics.median(seconds)
        goal = f" (goal {GOALS[way]:.2f}x)" if way in GOALS else ""
        print(f"{way:15} {median:6.2f} s  {arguments.rows / median:10,.0f} rows/s  {median / bare:5.2f}x of bare{goal}")
    print(f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after; {os.cpu_count()} cores")


def _ways(rows: DataFrame, servers: str) -> dict[str, Callable[[str], object]]:
    def bare(topic: str) -> None:
        options = {"kafka.bootstrap.servers": servers, "topic": topic}
        encoded = rows.selectExpr("to_json(named_struct('id', id)) AS key", "to_json(struct(*)) AS value")
        encoded.write.format("kafka").options(**options).save()

    def model(guarantee: str) -> Callable[[str], object]:
        def publish(topic: str) -> object:
            table = Table(rows.sparkSession, servers, topic, "benchmark", PARTITIONS)
            return table.publish(rows, sink_delivery_guarantee=guarantee)

        return publish

    return {BARE: bare} | {guarantee: model(guarantee) for guarantee in ("none", "at-least-once", "exactly-once")}


def _measure(ways: dict[str, Callable[[str], object]], rounds: int, servers: str) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {way: [] for way in ways}
    admin = KafkaAdminClient(bootstrap_servers=servers)
    # The first round warms up the JVMs and does not count.
    for number in range(rounds + 1):
        for way, write in ways.items():
            topic = f"{way}-{number}"
            spec = {"num_partitions": PARTITIONS, "replication_factor": 1, "configs": {"cleanup.policy": "compact"}}
            admin.create_topics({topic: spec}, wait_for_metadata=True)
            start = time.perf_counter()
            write(topic)
            seconds = time.perf_counter() - start
            print(f"{topic:20} {seconds:6.2f} s", file=sys.stderr)
            if number:
                times[way].append(seconds)
            admin.delete_topics([topic])
    return times


if __name__ == "__main__":
    main()
