"""A stream whose driver, Python workers and broker are killed while events flow: the topic equals a batch over the events."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest
from kafka.errors import KafkaError

from tests.dbt_project import Project
from tests.faults.scene import python_workers
from tests.faults.test_kills import kill
from tests.functional.stream_process import FILES, StreamProcess, counted, per_region, send
from tests.services import Cluster, read_topic

KILLS = ("worker", "broker", "driver", "broker", "worker")


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
        self.stream = self._started()

    def _started(self) -> StreamProcess:
        return StreamProcess(self.project, self.topic, "--report-interval", "1", "--max-restarts", "100")

    def wait_for_batch(self) -> None:
        """Wait until the stream has published since now."""
        before, until = self._records(), time.monotonic() + 240
        while self._records() == before:
            assert self.stream.process.poll() is None and time.monotonic() < until, self.stream.output()
            time.sleep(0.2)

    def _records(self) -> int:
        try:
            return len(read_topic(self.cluster.bootstrap_servers, f"{self.topic}_per_region", "read_uncommitted"))
        except (KafkaError, AssertionError):
            return 0

    def kill(self, what: str) -> None:
        match what:
            case "driver":
                kill(self.stream.process)
                self.stream = self._started()
            case "worker":
                for pid in python_workers(self.stream.process.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            case "broker":
                [broker] = self.cluster.brokers
                broker.kill()
                broker.launch()
                broker.wait()


@pytest.mark.parametrize(
    "kills",
    [KILLS, pytest.param(tuple(random.choices(KILLS, k=50)), marks=pytest.mark.nightly)],
    ids=["5", "50"],
)
def test_killed_stream_equals_a_batch_and_writes_no_batch_twice(
    fault_cluster: Cluster, topic_name: str, schema_name: str, tmp_path: Path, kills: tuple[str, ...]
) -> None:
    broker = fault_cluster.bootstrap_servers
    project = Project(tmp_path / "project", broker, schema_name).write(FILES)
    generator = Generator(broker, topic_name)
    send(broker, topic_name, [(1, "region 0")])
    generator.start()
    killed = Killed(project, fault_cluster, topic_name)
    try:
        for what in kills:
            killed.wait_for_batch()
            time.sleep(random.uniform(0, 2))
            killed.kill(what)
        killed.wait_for_batch()
    finally:
        generator.stopped.set()
        generator.join()
    with killed.stream as stream:
        stream.wait_for(broker, generator.events())
        stream.process.send_signal(signal.SIGTERM)
        assert stream.process.wait(60) == 0, stream.output()
    assert per_region(broker, topic_name) == counted(generator.events())

    # Every batch counts more events of the keys that it writes: a value that is not greater was written twice.
    values: dict[bytes | None, list[int]] = defaultdict(list)
    for record in read_topic(broker, f"{topic_name}_per_region"):
        values[record.key].append(json.loads(record.value or b"")["pv"])
    assert all(pv == sorted(set(pv)) for pv in values.values()), values
