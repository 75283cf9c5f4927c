"""How fast records are delivered: Spark's own Kafka sink as anybody would call it, and our sinks, in one run on one broker.

    python -m benchmarks.delivery [--rows 1000000] [--rounds 5]

The ways take turns, so that a busy moment of the machine falls on all of them; only the ratios of one run mean something.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable

import pyspark
from kafka import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import partitioners
from dbt.adapters.upsert_kafka.java import fetch_jars
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.partitioners import Partitioner
from dbt.adapters.upsert_kafka.session import INSIDE_SPARK, kafka_jars
from dbt.adapters.upsert_kafka.sinks import Target
from dbt.adapters.upsert_kafka.sinks.spark import SparkSink
from dbt.adapters.upsert_kafka.sinks.transaction import TransactionSink
from tests.services import Cluster

PARTITIONS = 4
VALUE = """to_json(named_struct('id', id, 'name', concat('name of ', id), 'amount', id * 7, 'city', 'a city', 'day', id % 31))"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with Cluster() as cluster:
        spark = _session()
        rows = spark.range(0, arguments.rows, 1, 2 * PARTITIONS).selectExpr(
            "CAST(to_json(named_struct('id', id)) AS BINARY) AS key",
            f"CAST({VALUE} AS BINARY) AS value",
            "CAST(NULL AS INT) AS partition",
        )
        rows = rows.localCheckpoint()
        ways = _ways(rows, cluster.bootstrap_servers)
        times = _measure(ways, arguments.rounds, cluster.bootstrap_servers)
        spark.stop()
    bare = statistics.median(times["bare"])
    for way, seconds in times.items():
        median = statistics.median(seconds)
        print(f"{way:15} {median:6.2f} s  {arguments.rows / median:10,.0f} rows/s  {median / bare:5.2f}x of bare")


def _ways(rows: DataFrame, servers: str) -> dict[str, Callable[[str], object]]:
    def bare(topic: str) -> None:
        options = {"kafka.bootstrap.servers": servers, "topic": topic}
        rows.select("key", "value").write.format("kafka").options(**options).save()

    def sink(guarantee: str) -> Callable[[str], object]:
        def write(topic: str) -> object:
            target = Target(topic, PARTITIONS, KafkaSettings(servers), f"benchmark.{topic}")
            if guarantee == "exactly-once":
                return TransactionSink().deliver(partitioners.place(rows, Partitioner(), PARTITIONS, False), target)
            return SparkSink("none" if guarantee == "none" else "at-least-once").deliver(rows, target)

        return write

    return {"bare": bare} | {guarantee: sink(guarantee) for guarantee in ("none", "at-least-once", "exactly-once")}


def _measure(ways: dict[str, Callable[[str], object]], rounds: int, servers: str) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {way: [] for way in ways}
    admin = KafkaAdminClient(bootstrap_servers=servers)
    # The first round warms up the JVMs and does not count.
    for number in range(rounds + 1):
        for way, write in ways.items():
            topic = f"{way}-{number}"
            admin.create_topics({topic: {"num_partitions": PARTITIONS, "replication_factor": 1}}, wait_for_metadata=True)
            start = time.perf_counter()
            write(topic)
            if number:
                times[way].append(time.perf_counter() - start)
            admin.delete_topics([topic])
    return times


def _session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    jars = fetch_jars("spark-kafka", kafka_jars(pyspark.__version__), INSIDE_SPARK)
    builder = SparkSession.builder.master("local[2]").config("spark.jars", ",".join(map(str, jars)))
    settings = {"spark.driver.memory": "2g", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main()
