"""A stream whose driver, Python workers and broker are killed while events flow: the topic equals a batch over the events."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import KafkaError

from tests.dbt_project import Project
from tests.faults.scene import python_workers
from tests.faults.test_kills import kill
from tests.functional.stream_process import FILES, PER_REGION, StreamProcess, counted, per_region, send
from tests.services import Cluster, end_offsets, read_topic

SCHEMA_OF_SOURCE = """
models:
  - {name: views, columns: [{name: user_id, data_type: bigint}, {name: region, data_type: string}]}
"""
KILLS = ("driver", "worker", "driver", "broker", "worker")
CRASH = "A fatal error has been detected by the Java Runtime Environment"
"""Of Java itself. A task that is cancelled may still write to Python when Spark frees its buffer (DirectByteBufferOutputStream),
and then Java crashes, once in many runs. It is one more kill of the driver: whoever runs the stream starts it again."""
LARGE = [(user, f"large {user}") for user in range(25)]
"""Their rows are 450 kB each: such a batch is more than the driver writes itself, so that Spark's Python workers write it."""
FILLER = "repeat('x', if(region like 'large%', 450000, 0)) as filler from"
COUNTS = {**FILES, "models/per_region.sql": PER_REGION.replace(" from", f", {FILLER}")}
COUNTS_AT_LEAST_ONCE = {**FILES, "models/per_region.sql": PER_REGION.replace("exactly-once", "at-least-once")}
EVENTS = f"""
{{{{ config(materialized='kafka', trigger='continuous', trigger_interval='500 ms', topic=var('views') ~ '_per_region',
          sink_delivery_guarantee='exactly-once') }}}}
select kafka_partition as source_partition, kafka_offset as source_offset, {FILLER} {{{{ stream(ref('views')) }}}}"""


class Generator(threading.Thread):
    """Writes events until it is stopped. While the broker is down, some may be lost or written twice: the topic tells."""

    def __init__(self, broker: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.broker, self.topic = broker, topic
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.2):
            with suppress(KafkaError):
                send(self.broker, self.topic, [(random.randrange(500), f"region {random.randrange(20)}") for _ in range(50)])

    def events(self) -> list[tuple[int, str]]:
        rows = [json.loads(record.value or b"") for record in read_topic(self.broker, self.topic)]
        return [(row["user_id"], row["region"]) for row in rows]


class Killed:
    """A stream that is started again whenever its process was killed."""

    def __init__(self, project: Project, cluster: Cluster, topic: str) -> None:
        self.project, self.cluster, self.topic = project, cluster, topic
        self.broker = cluster.bootstrap_servers
        self.stream = self._started()

    def _started(self) -> StreamProcess:
        return StreamProcess(self.project, self.topic, "--report-interval", "1", "--max-restarts", "100")

    def wait(self, condition: Callable[[], Any], seconds: float = 240) -> Any:
        until = time.monotonic() + seconds
        while not (found := condition()):
            if self.stream.process.poll() is not None and CRASH in self.stream.output():
                self.stream = self._started()
            assert self.stream.process.poll() is None and time.monotonic() < until, self.stream.output()
            time.sleep(0.05)
        return found

    def wait_for_batch(self) -> None:
        """Wait until the stream has published since now."""
        before = self._end()
        self.wait(lambda: self._end() > before)

    def _end(self) -> int:
        try:
            return sum(end_offsets(self.broker, f"{self.topic}_per_region").values())
        except (KafkaError, AssertionError):
            return 0

    def kill(self, what: str) -> None:
        match what:
            case "driver":
                kill(self.stream.process)
                self.stream = self._started()
            case "worker":
                self._kill(python_workers(self.stream.process.pid))  # idle ones, of an earlier batch
                send(self.broker, self.topic, LARGE)
                assert self._kill(self.wait(lambda: python_workers(self.stream.process.pid)))
            case "broker":
                [broker] = self.cluster.brokers
                broker.kill()
                broker.launch()
                broker.wait()

    def _kill(self, pids: list[int]) -> int:
        """Kill processes.

        Returns:
            How many there were still.
        """
        killed = 0
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        return killed


@contextmanager
def killed_stream(cluster: Cluster, topic: str, project: Project, kills: tuple[str, ...]) -> Iterator[tuple[Killed, Generator]]:
    """A stream that was killed while events flowed. No more come."""
    generator = Generator(cluster.bootstrap_servers, topic)
    send(cluster.bootstrap_servers, topic, [(1, "region 0")])
    generator.start()
    killed = Killed(project, cluster, topic)
    try:
        try:
            for what in kills:
                killed.wait_for_batch()
                time.sleep(random.uniform(0, 2))
                killed.kill(what)
            killed.wait_for_batch()
        finally:
            generator.stopped.set()
            generator.join()
        yield killed, generator
        killed.stream.process.send_signal(signal.SIGTERM)
        assert killed.stream.process.wait(60) == 0, killed.stream.output()
    finally:
        killed.stream.process.kill()
        killed.stream.process.wait()


@pytest.mark.parametrize(
    "kills",
    [KILLS, pytest.param(tuple(random.choices(KILLS, k=50)), marks=pytest.mark.nightly)],
    ids=["5", "50"],
)
def test_killed_stream_equals_a_batch_and_writes_no_batch_twice(
    fault_cluster: Cluster, topic_name: str, schema_name: str, tmp_path: Path, kills: tuple[str, ...]
) -> None:
    broker = fault_cluster.bootstrap_servers
    project = Project(tmp_path / "project", broker, schema_name).write(COUNTS)
    with killed_stream(fault_cluster, topic_name, project, kills) as (killed, generator):
        killed.stream.wait_for(broker, generator.events())
    assert per_region(broker, topic_name) == counted(generator.events())

    # Every batch counts more events of the keys that it writes: a value that is not greater was written twice.
    values: dict[bytes | None, list[int]] = defaultdict(list)
    for record in read_topic(broker, f"{topic_name}_per_region"):
        values[record.key].append(json.loads(record.value or b"")["pv"])
    assert all(pv == sorted(set(pv)) for pv in values.values()), values


@pytest.mark.nightly
def test_killed_stream_at_least_once_has_the_last_values(
    fault_cluster: Cluster, topic_name: str, schema_name: str, tmp_path: Path
) -> None:
    broker = fault_cluster.bootstrap_servers
    project = Project(tmp_path / "project", broker, schema_name).write(COUNTS_AT_LEAST_ONCE)
    with killed_stream(fault_cluster, topic_name, project, ("driver", "broker") * 5) as (killed, generator):
        killed.stream.wait_for(broker, generator.events())


@pytest.mark.nightly
def test_killed_stream_appends_each_event_once(fault_cluster: Cluster, topic_name: str, schema_name: str, tmp_path: Path) -> None:
    broker = fault_cluster.bootstrap_servers
    project = Project(tmp_path / "project", broker, schema_name)
    project.write({**FILES, "models/per_region.sql": EVENTS, "models/schema.yml": SCHEMA_OF_SOURCE})

    def appended() -> Counter[tuple[int, int]]:
        rows = [json.loads(record.value or b"") for record in read_topic(broker, f"{topic_name}_per_region")]
        return Counter((row["source_partition"], row["source_offset"]) for row in rows)

    with killed_stream(fault_cluster, topic_name, project, KILLS * 2) as (killed, _):
        sent = Counter((record.partition, record.offset) for record in read_topic(broker, topic_name))
        killed.wait(lambda: appended().keys() == sent.keys())
    assert appended() == sent
