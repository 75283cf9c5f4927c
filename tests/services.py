"""Real services for the tests: brokers and clusters on free ports, in folders of their own, gone when the test process is gone.

Built from the same parts as the project's own broker; what tests then do to them (stop, kill, pause) is theirs.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

import requests
from kafka import KafkaConsumer, TopicPartition

from dbt.adapters.upsert_kafka.embedded.node import (
    KAFKA_VERSION,
    LOOPBACK,
    Node,
    end,
    free_ports,
    kafka_jars,
    new_cluster_id,
    read_state,
)
from dbt.adapters.upsert_kafka.java import fetch_jars, find_java

APICURIO_VERSION = "3.0.9"

# Speed after the first minute counts here, other than in an embedded broker.
TEST_JVM_FLAGS = ("-XX:TieredStopAtLevel=4",)


class Broker:
    """One server of a cluster, under the test's control."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._lock: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of Kafka's own process."""
        state = read_state(self.node.state_file)
        assert state is not None, f"no broker was ever started in {self.node.folder}"
        return int(state["broker"])

    def launch(self) -> None:
        """Start without waiting: a cluster answers only when most of its servers run."""
        self.node.prepare()
        self._lock = open(self.node.users_lock, "a")  # noqa: SIM115
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._process = self.node.launch()

    def wait(self) -> None:
        assert self._process is not None
        self.node.wait_until_ready(self._process)

    def start(self) -> None:
        """Start, with the data that is there, and return when it answers."""
        self.launch()
        self.wait()

    def stop(self) -> None:
        """Orderly shutdown."""
        if self._process is not None:
            self._end(signal.SIGTERM, self._process.pid)

    def kill(self) -> None:
        """As if the power had failed."""
        if self._process is not None:
            self._end(signal.SIGKILL, self.pid)

    def pause(self) -> None:
        """Hang: connections stay open, nothing is answered."""
        end(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        end(self.pid, signal.SIGCONT)

    def _end(self, number: int, pid: int) -> None:
        assert self._process is not None and self._lock is not None
        self.resume()
        end(pid, number)
        self._process.wait(60)
        self._lock.close()
        self._process = self._lock = None


class Service:
    """Something that is started on entry and gone on exit, also if it did not start."""

    def start(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Cluster(Service):
    """A Kafka cluster on loopback, started on entry and removed on exit.

    Args:
        brokers: number of servers.
        properties: server properties on top of the defaults, for all of them.
        version: of Apache Kafka.
        secured: security protocols to listen for as well; the ports of the first server are in `ports`.
    """

    def __init__(
        self,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
        secured: Sequence[str] = (),
        jvm_flags: tuple[str, ...] = (),
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="upsert-kafka-test-"))
        ports = free_ports((2 + len(secured)) * brokers)
        listeners, controllers, others = ports[:brokers], ports[brokers : 2 * brokers], ports[2 * brokers :]
        voters = ",".join(f"{i}@{LOOPBACK}:{port}" for i, port in enumerate(controllers, 1))
        replicas = str(min(3, brokers))
        replication = {
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, brokers)),
        }
        cluster_id, jars, java = new_cluster_id(), kafka_jars(version), str(find_java())
        self.brokers = [
            Broker(
                Node(
                    self._folder / str(i), jars, java, cluster_id, port, controller, i, voters,
                    {**replication, **(properties or {})}, (*TEST_JVM_FLAGS, *jvm_flags),
                    {protocol: others.pop() for protocol in secured},
                )
            )
            for i, (port, controller) in enumerate(zip(listeners, controllers, strict=True), 1)
        ]  # fmt: skip

    @property
    def ports(self) -> Mapping[str, int]:
        return self.brokers[0].node.listeners

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.node.bootstrap_servers for broker in self.brokers)

    def start(self) -> None:
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait()

    def close(self) -> None:
        for broker in self.brokers:
            broker.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class SchemaRegistry(Service):
    """A real registry with Confluent's API (Apicurio, in memory), started on entry and gone on exit."""

    def __init__(self) -> None:
        [archive] = fetch_jars("schema-registry", [f"io.apicurio:apicurio-registry-app:{APICURIO_VERSION}:tar.gz:all"])
        self._folder = tempfile.TemporaryDirectory(prefix="upsert-kafka-registry-")
        with tarfile.open(archive) as files:
            files.extractall(self._folder.name, filter="data")
        [self._port] = free_ports(1)
        self.url = f"http://{LOOPBACK}:{self._port}/apis/ccompat/v7"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        [jar] = Path(self._folder.name).rglob("*-runner.jar")
        flags = ["-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={self._port}"]
        log = Path(self._folder.name, "log")
        with log.open("wb") as output:
            command = [str(find_java()), *flags, "-jar", str(jar)]
            self._process = subprocess.Popen(command, stdout=output, stderr=output, cwd=self._folder.name)
        for _ in range(600):
            assert self._process.poll() is None, f"the registry ended: {log.read_text()[-2000:]}"
            try:
                if requests.get(f"{self.url}/subjects", timeout=10).ok:
                    return
            except requests.ConnectionError:
                time.sleep(0.2)
        raise AssertionError(f"the registry did not answer: {log.read_text()[-2000:]}")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


class Record(NamedTuple):
    """What an independent reader sees."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp: int


def read_topic(bootstrap_servers: str, topic: str, isolation_level: str = "read_committed") -> list[Record]:
    """All records of a topic by partition and offset, read by kafka-python without a group."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers, group_id=None, auto_offset_reset="earliest", isolation_level=isolation_level
    )
    try:
        partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        assert partitions, f"topic {topic} does not exist"
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        records: list[Record] = []
        # Transaction markers take offsets too, so positions tell the end, not the records seen.
        while any(consumer.position(p) < ends[p] for p in partitions):
            for batch in consumer.poll(timeout_ms=1000).values():
                records += [Record(r.partition, r.offset, r.key, r.value, list(r.headers), r.timestamp) for r in batch]
        return sorted(records, key=lambda r: (r.partition, r.offset))
    finally:
        consumer.close()


def end_offsets(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """Next offset of every partition."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=None)
    try:
        partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        return {p.partition: offset for p, offset in consumer.end_offsets(partitions).items()}
    finally:
        consumer.close()
