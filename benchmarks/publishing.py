"""Publishing a table and its changes, compared with the alternatives.

The baseline is Spark's own Kafka sink: it encodes and writes all rows and checks nothing. A first load is the same work. A later
run without a comparison has to write all rows again.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from pyspark.sql import DataFrame

from benchmarks import flink
from benchmarks.measured import Figure, figures, say, session, taken, timed
from benchmarks.tables import Versions, generate
from dbt.adapters.upsert_kafka.embedded.node import KAFKA_VERSION
from dbt.adapters.upsert_kafka.java import fetch_jars, find_java
from dbt.adapters.upsert_kafka.publish import snapshots
from tests.services import Cluster
from tests.tables import Table

PARTITIONS = 4
BARE, CEILING = "bare Spark sink", "Kafka's ProducerPerformance"
FLINK, FLINK_ONCE = "Flink upsert-kafka, at-least-once", "Flink upsert-kafka, exactly-once"
AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
FIRST, UNCHANGED, CHANGED, DELETED, REFRESH = "first load", "unchanged", "1 % changed", "0.1 % deleted", "full refresh"
WITHOUT_SNAPSHOT, CORE_SECONDS = "1 % changed without a snapshot", "core-seconds per million rows"
GOALS = {
    FIRST: {AT_LEAST_ONCE: 1.2, EXACTLY_ONCE: 1.3},
    UNCHANGED: {AT_LEAST_ONCE: 0.4, EXACTLY_ONCE: 0.4},
    CHANGED: {AT_LEAST_ONCE: 0.9, EXACTLY_ONCE: 0.9},
    REFRESH: {AT_LEAST_ONCE: 1.3, EXACTLY_ONCE: 1.3},
}
GOALS_OF_SMALL = {CHANGED: {AT_LEAST_ONCE: 1.5, EXACTLY_ONCE: 1.5}}
"""For the narrow rows."""
MOST_CORE_SECONDS = 6
SMALL = 100_000
Times = dict[str, dict[str, list[float]]]
"""Seconds by work and contender."""


def measure(arguments: argparse.Namespace, folder: Path) -> list[Figure]:
    with Cluster() as cluster, flink.job(cluster.bootstrap_servers) as flink_job:
        spark = session()
        servers, rounds = cluster.bootstrap_servers, arguments.rounds
        found = []
        # The largest table comes last: by then the JVM has compiled the code that plans queries.
        for shape, rows in (("wide", SMALL), ("narrow", SMALL), ("narrow", arguments.rows)):
            table = generate(spark, folder, shape, rows)
            whole = shape == "narrow" and rows == arguments.rows
            times: Times = {}
            for number in range(rounds + 1):
                say(f"{shape}, {rows:,} rows, {f'round {number} of {rounds}' if number else 'warming up'}")
                for work, contender, seconds in _round(table, servers, whole, flink_job if whole else None, rows):
                    say(f"  {work:15} {contender:36} {seconds:6.2f} s")
                    if number:
                        times.setdefault(work, {}).setdefault(contender, []).append(seconds)
            core_seconds = times.pop(CORE_SECONDS, {})
            goals = GOALS if whole else GOALS_OF_SMALL if shape == "narrow" else {}
            for work, by_contender in times.items():
                compared = {BARE: times[FIRST][BARE], **by_contender}
                found += figures(f"{work}, {rows:,} {shape} rows", compared, BARE, goals.get(work, {}))
            for contender, values in core_seconds.items():
                work = f"{WITHOUT_SNAPSHOT}, {rows:,} {shape} rows"
                found.append(Figure(work, contender, values, CORE_SECONDS, note=f"goal: at most {MOST_CORE_SECONDS}"))
        spark.stop()
    return found


def _round(
    table: Versions, servers: str, whole: bool, flink_job: flink.Job | None, rows: int
) -> Iterator[tuple[str, str, float]]:
    """One turn of each contender, as (work, contender, seconds)."""
    with new_topic(servers) as topic:
        yield FIRST, BARE, timed(bare, table.first, servers, topic)
    for guarantee in (AT_LEAST_ONCE, EXACTLY_ONCE):
        with new_topic(servers) as topic:
            model = Table(table.first.sparkSession, servers, topic, "benchmark", PARTITIONS)
            publish = _publisher(model, sink_delivery_guarantee=guarantee)
            yield FIRST, guarantee, timed(publish, table.first)
            yield UNCHANGED, guarantee, timed(publish, table.first)
            yield CHANGED, guarantee, timed(publish, table.changed)
            yield DELETED, guarantee, timed(publish, table.deleted)
            yield REFRESH, guarantee, timed(publish, table.deleted, full_refresh=True)
    if whole:
        with new_topic(servers) as topic:
            model = Table(table.first.sparkSession, servers, topic, "benchmark", PARTITIONS)
            model.publish(table.first)
            snapshots.drop(model.spark, model.relation)
            read = taken(model.spark, partial(model.publish, table.changed))
            yield WITHOUT_SNAPSHOT, AT_LEAST_ONCE, read.clock
            yield CORE_SECONDS, AT_LEAST_ONCE, read.processor / rows * 1e6
    others = {"none": {"sink_delivery_guarantee": "none"}} | {
        f"at-least-once, {name}": {"key_format": name, "value_format": name} for name in ("csv", "avro")
    }
    for contender, options in others.items() if whole else ():
        with new_topic(servers) as topic:
            model = Table(table.first.sparkSession, servers, topic, "benchmark", PARTITIONS)
            publish = _publisher(model, **options)
            yield FIRST, contender, timed(publish, table.first)
    if whole:
        with new_topic(servers, "delete") as topic:
            yield FIRST, CEILING, _producer_performance(servers, topic, rows)
    if flink_job is not None:
        for contender, guarantee in {FLINK: AT_LEAST_ONCE, FLINK_ONCE: EXACTLY_ONCE}.items():
            with new_topic(servers) as topic:
                yield FIRST, contender, flink_job.load(topic, rows, guarantee)


def _publisher(model: Table, **options: Any) -> Callable[..., object]:
    return lambda rows, **request: model.publish(rows, **options, **request)


def bare(rows: DataFrame, servers: str, topic: str) -> None:
    """Encode and write all rows with Spark's own functions."""
    encoded = rows.selectExpr("to_json(named_struct('id', id)) AS key", "to_json(struct(*)) AS value")
    encoded.write.format("kafka").options(**{"kafka.bootstrap.servers": servers, "topic": topic}).save()


def _producer_performance(servers: str, topic: str, rows: int) -> float:
    """Seconds of Kafka's ProducerPerformance for as many records of this size, without keys, not counting its start."""
    jars = fetch_jars("kafka-tools", [f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}", "org.slf4j:slf4j-simple:1.7.36"])
    command = [
        str(find_java()), "-cp", f"{jars[0].parent}/*", "org.apache.kafka.tools.ProducerPerformance",
        "--topic", topic, "--num-records", str(rows), "--record-size", "130", "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={servers}", "acks=all", "linger.ms=20", "batch.size=262144",
    ]  # fmt: skip
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rate = re.search(r"([\d.]+) records/sec", output.splitlines()[-1])
    assert rate is not None, output
    return rows / float(rate[1])


@contextmanager
def new_topic(servers: str, policy: str = "compact") -> Iterator[str]:
    """A new topic that is deleted at the end."""
    topic = f"bench-{time.time_ns()}"
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        spec = {"num_partitions": PARTITIONS, "replication_factor": 1, "configs": {"cleanup.policy": policy}}
        admin.create_topics({topic: spec}, wait_for_metadata=True)
        yield topic
        admin.delete_topics([topic])
    finally:
        admin.close()
