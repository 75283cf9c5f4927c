"""Streams: the same aggregation continuously, by `upsert-kafka stream` and by Flink's upsert-kafka, at the same interval.

Each contender runs alone: first warm, at the rate of the measurement, then the latency of probes at this rate, then higher rates
until one is not sustained, then a burst that it has to catch up with, then memory over minutes. Every event must be counted once
at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaAdminClient

from benchmarks import flink
from benchmarks.measured import Figure, say
from benchmarks.stream_load import Load, Results, percentile
from benchmarks.stream_memory import Memory
from tests.dbt_project import Project
from tests.services import Cluster

_SUSTAINED = "highest rate that was offered and sustained"
PARTITIONS, GROUPS = 4, 10_000
START_SECONDS, CATCH_UP_SECONDS = 600.0, 1800.0
LAG_SECONDS, LAG_GROWTH_SECONDS = 5.0, 2.0
"""A rate is sustained if the events that are not counted yet are those of so many seconds at most, and grow by fewer."""
GENERATED = 0.95
"""Of an offered rate that the generator must reach."""

MODELS = {
    "models/views.sql": "{{ config(materialized='kafka_source', topic=var('source')) }}\nselect * from {{ kafka_topic() }}",
    "models/per_region.sql": """
{{ config(materialized='upsert_kafka', unique_key='region', topic=var('result'), trigger='continuous',
          trigger_interval=var('interval') ~ ' ms', sink_delivery_guarantee=var('guarantee')) }}
select region, count(*) as pv from {{ stream(ref('views')) }} group by region""",
    "models/schema.yml": """
models:
  - {name: views, columns: [{name: region, data_type: string}, {name: user_id, data_type: bigint}]}
""",
}


@dataclass(frozen=True)
class Contender:
    """One engine with one guarantee."""

    name: str
    guarantee: str
    is_flink: bool = False
    mini_batch: bool = False


CONTENDERS = (
    Contender("at-least-once", "at-least-once"),
    Contender("exactly-once", "exactly-once"),
    Contender("Flink upsert-kafka, at-least-once", "at-least-once", is_flink=True),
    Contender("Flink upsert-kafka, exactly-once", "exactly-once", is_flink=True),
    Contender("Flink upsert-kafka, mini-batches, at-least-once", "at-least-once", is_flink=True, mini_batch=True),
    Contender("Flink upsert-kafka, mini-batches, exactly-once", "exactly-once", is_flink=True, mini_batch=True),
)


@dataclass(frozen=True)
class Measured:
    """What one contender reached."""

    latencies: list[float]
    events_per_second: float
    load: float
    """The machine's, of the last minute."""
    own_cpu: float
    """Seconds that the generator and the reader of this benchmark took from the contender's processors while it caught up."""
    sustained: int | None
    """The highest rate that was offered and sustained; None if none was."""
    memory: Memory | None
    """Over `--minutes`, at the rate of the measurement."""

    @property
    def note(self) -> str:
        return f"load {self.load:.1f}, generator and reader {self.own_cpu:.0f} s CPU"


def measure(arguments: argparse.Namespace, folder: Path) -> list[Figure]:
    found: dict[str, Measured] = {}
    with Cluster() as cluster:
        contenders = CONTENDERS[: arguments.contenders]
        environment = flink.environment() if any(contender.is_flink for contender in contenders) else None
        for number, contender in enumerate(contenders):
            if contender.is_flink and environment is None:
                continue
            say(f"{contender.name}: starts")
            topics = Topics(cluster.bootstrap_servers, number, arguments.interval)
            topics.create()
            here = folder / str(number)
            here.mkdir()
            command = _flink(topics, contender, environment, here) if environment and contender.is_flink else None
            with _running(command or _ours(topics, contender, here), here) as process:
                found[contender.name] = _measured(topics, process, arguments)
            one = found[contender.name]
            middle, tail = statistics.median(one.latencies), percentile(one.latencies, 99)
            say(f"  {one.events_per_second:9,.0f} events/s, median {middle:.2f} s, p99 {tail:.2f} s, {one.note}")
            say(f"  sustained {one.sustained or 0:,} events/s")
            if one.memory is not None:
                say(f"  resident {', '.join(f'{value:.0f}' for value in one.memory.resident())} MB, {one.memory.note()}")
    return _figures(found, arguments)


def _measured(topics: Topics, process: subprocess.Popen[bytes], arguments: argparse.Namespace) -> Measured:
    load = Load(topics.servers, topics.source, GROUPS)
    results = Results(topics.servers, topics.result, PARTITIONS, lambda: process.poll() is None)
    results.start()
    try:
        load.at_rate(arguments.rate, 1)
        results.wait_for(load.sent, START_SECONDS)
        load.at_rate(arguments.rate, arguments.warm)
        results.wait_for(load.sent, CATCH_UP_SECONDS)
        load.acknowledged.clear()
        load.at_rate(arguments.rate, arguments.seconds)
        results.wait_for(load.sent, CATCH_UP_SECONDS)
        latencies = [results.arrived[probe] - at for probe, at in load.acknowledged.items()]
        sustained = _sustained(load, results, arguments)
        begin, used = time.monotonic(), time.process_time()
        load.burst(arguments.rows)
        seconds = results.wait_for(load.sent, CATCH_UP_SECONDS) - begin
        note = (os.getloadavg()[0], time.process_time() - used)
        memory = _memory(load, process, arguments)
        results.wait_for(load.sent, CATCH_UP_SECONDS)
        assert results.total == load.sent, f"{results.total} of {load.sent} events are counted"
        return Measured(latencies, arguments.rows / seconds, *note, sustained, memory)
    finally:
        results.close()


def _sustained(load: Load, results: Results, arguments: argparse.Namespace) -> int | None:
    """The highest of the offered rates at which the lag stays bounded."""
    highest = None
    for rate in sorted(arguments.sustain):
        lags, begin, before = [], time.monotonic(), load.sent
        for _ in range(2):
            load.at_rate(rate, arguments.sustain_seconds / 2)
            lags.append((load.sent - results.total) / rate)
        offered = (load.sent - before) / (time.monotonic() - begin)
        results.wait_for(load.sent, CATCH_UP_SECONDS)
        say(f"  {rate:,} events/s offered, {offered:,.0f} generated, {lags[0]:.1f} s and {lags[1]:.1f} s behind")
        if offered < GENERATED * rate or lags[1] > LAG_SECONDS or lags[1] - lags[0] > LAG_GROWTH_SECONDS:
            break
        highest = rate
    return highest


def _memory(load: Load, process: subprocess.Popen[bytes], arguments: argparse.Namespace) -> Memory | None:
    if not arguments.minutes:
        return None
    with Memory(process.pid) as memory:
        load.at_rate(arguments.rate, arguments.minutes * 60)
    return memory


def _figures(found: dict[str, Measured], arguments: argparse.Namespace) -> list[Figure]:
    """Ratios compare with Flink of the same guarantee, without mini-batches."""
    figures = []
    at = f"{arguments.rate:,} events/s, every {arguments.interval} ms"
    for name, one in found.items():
        base = found.get(f"Flink upsert-kafka, {name.split(', ')[-1]}")
        rate = None if base is None else base.events_per_second
        figures.append(
            Figure(f"catching up with {arguments.rows:,} events", name, [one.events_per_second], "events/s", rate, note=one.note)
        )
        if one.sustained is not None:
            highest = None if base is None or base.sustained is None else float(base.sustained)
            figures.append(Figure(_SUSTAINED, name, [float(one.sustained)], "events/s", highest, note=one.note))
        if one.memory is not None and (resident := one.memory.resident()):
            work = f"resident memory in {arguments.minutes:g} minutes, {at}"
            figures.append(Figure(work, name, resident, "MB", note=one.memory.note()))
        for which, percent in {"median": 50, "p99": 99}.items():
            seconds = None if base is None else percentile(base.latencies, percent)
            if seconds is not None and seconds <= 0:
                # The result arrived before this process had handled the broker's acknowledgement: no ratio.
                seconds = None
            figures.append(
                Figure(
                    f"commit to visible, {which}, {at}", name, [percentile(one.latencies, percent)], "s", seconds, note=one.note
                )
            )
    return sorted(figures, key=lambda figure: figure.work)


@dataclass(frozen=True)
class Topics:
    """Source and result of one contender."""

    servers: str
    number: int
    interval: int

    @property
    def source(self) -> str:
        return f"views-{self.number}"

    @property
    def result(self) -> str:
        return f"per-region-{self.number}"

    def create(self) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        spec = {"num_partitions": PARTITIONS, "replication_factor": 1}
        compacted = {**spec, "configs": {"cleanup.policy": "compact"}}
        admin.create_topics({self.source: spec, self.result: compacted}, wait_for_metadata=True)
        admin.close()


def _ours(topics: Topics, contender: Contender, folder: Path) -> list[str]:
    project = Project(folder / "project", topics.servers)
    # Users do not have the settings of the tests.
    project.profile = {**project.profile, "spark": {}, "master": "local[*]"}
    project.save_profile()
    project.write(MODELS)
    given = {"source": topics.source, "result": topics.result, "interval": topics.interval, "guarantee": contender.guarantee}
    return project.command("stream", "--vars", json.dumps(given), program="upsert-kafka")


def _flink(topics: Topics, contender: Contender, environment: flink.Environment, folder: Path) -> list[str]:
    order = {
        "servers": topics.servers,
        "jar": str(environment.jar),
        "source": topics.source,
        "result": topics.result,
        "interval": topics.interval,
        "guarantee": contender.guarantee,
        "mini_batch": contender.mini_batch,
        "folder": str(folder / "checkpoints"),
    }
    return [str(environment.python), str(Path(__file__).parent / "flink_stream.py"), json.dumps(order)]


@contextmanager
def _running(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a contender with all of its processes in a group, which is killed at the end."""
    log = folder / "log"
    settings = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with log.open("w") as out:
        process = subprocess.Popen(
            command, env=settings, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    except TimeoutError:
        sys.stderr.write(log.read_text()[-3000:])
        raise
    finally:
        # Its JVM is in the group too, and may outlive a process that failed.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
