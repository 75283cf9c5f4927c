"""Real services for tests: Kafka clusters and a schema registry on free ports, which end with the test process.

Clusters are built from `embedded.node`. Tests start, stop, kill and pause the brokers.
"""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

import requests
from confluent_kafka import Consumer
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from dbt.adapters.upsert_kafka.embedded.node import (
    KAFKA_VERSION,
    LOOPBACK,
    Node,
    end,
    formatted_as,
    free_ports,
    kafka_jars,
    new_cluster_id,
    read_state,
)
from dbt.adapters.upsert_kafka.java import fetch_jars, find_java

APICURIO_VERSION = "3.0.9"

# The brokers of tests run for minutes, so they are compiled with the optimizing compiler, unlike an embedded broker.
TEST_JVM_FLAGS = ("-XX:TieredStopAtLevel=4",)


class Broker:
    """One server of a cluster."""

    def __init__(self, node: Node, features: Mapping[str, int] | None = None) -> None:
        self.node = node
        self._features = features or {}
        self._lock: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of Kafka itself, not of its supervisor."""
        state = read_state(self.node.state_file)
        assert state is not None, f"no broker was started in {self.node.folder}"
        return int(state["broker"])

    def launch(self) -> None:
        """Start without waiting, because a cluster answers only when most of its servers run."""
        self._format()
        self.node.prepare()
        self._lock = open(self.node.users_lock, "a")  # noqa: SIM115
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._process = self.node.launch()

    def _format(self) -> None:
        """Format the storage with feature versions other than the defaults."""
        if not self._features or formatted_as(self.node.folder):
            return
        self.node.folder.mkdir(parents=True)
        properties = "".join(f"{name}={value}\n" for name, value in self.node.server_properties().items())
        (self.node.folder / "server.properties").write_text(properties)
        features = [word for name, version in self._features.items() for word in ("--feature", f"{name}={version}")]
        arguments = ("format", "-t", self.node.cluster_id, "-c", "server.properties", *features)
        subprocess.run(self.node.command("kafka.tools.StorageTool", *arguments), cwd=self.node.folder, check=True)
        (self.node.folder / "formatted").write_text(self.node.cluster_id)

    def wait(self) -> None:
        assert self._process is not None
        self.node.wait_until_ready(self._process)

    def start(self) -> None:
        """Start with the existing data and return when the broker answers."""
        self.launch()
        self.wait()

    def stop(self) -> None:
        """Shut down cleanly."""
        if self._process is not None:
            self._end(signal.SIGTERM, self._process.pid)

    def kill(self) -> None:
        """Kill the process, as after a power failure."""
        if self._process is not None:
            self._end(signal.SIGKILL, self.pid)

    def pause(self) -> None:
        """Stop the process: connections stay open, but requests get no answer."""
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
    """A service that is started on entry and closed on exit, even if its start failed."""

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
        properties: properties of all servers, which override the defaults.
        version: version of Apache Kafka.
        secured: additional listeners by security protocol; `ports` has the ports of the first server.
        features: versions of features with which the storage is formatted, such as `transaction.version`.
    """

    def __init__(
        self,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
        secured: Sequence[str] = (),
        jvm_flags: tuple[str, ...] = (),
        features: Mapping[str, int] | None = None,
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
                ),
                features,
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


def registry_archive() -> Path:
    """The archive of the schema registry, from the cache or downloaded into it."""
    [archive] = fetch_jars("schema-registry", [f"io.apicurio:apicurio-registry-app:{APICURIO_VERSION}:tar.gz:all"])
    return archive


class SchemaRegistry(Service):
    """A real registry with Confluent's API (Apicurio, in memory), started on entry and closed on exit."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="upsert-kafka-registry-")
        with tarfile.open(registry_archive()) as files:
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
    """A record as kafka-python reads it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp: int


def read_topic(bootstrap_servers: str, topic: str, isolation_level: str = "read_committed") -> list[Record]:
    """All records of a topic, ordered by partition and offset, read by kafka-python without a group."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers, group_id=None, auto_offset_reset="earliest", isolation_level=isolation_level
    )
    try:
        partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        assert partitions, f"topic {topic} does not exist"
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        records: list[Record] = []
        # Transaction markers have offsets too, so the end is recognised by position, not by the number of records.
        while any(consumer.position(p) < ends[p] for p in partitions):
            for batch in consumer.poll(timeout_ms=1000).values():
                records += [Record(r.partition, r.offset, r.key, r.value, list(r.headers), r.timestamp) for r in batch]
        return sorted(records, key=lambda r: (r.partition, r.offset))
    finally:
        consumer.close()


def list_topics(bootstrap_servers: str) -> set[str]:
    """The topics of a cluster."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        return set(admin.list_topics())
    finally:
        admin.close()


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Delete a topic and wait until the cluster does not list it any more."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    admin.delete_topics([topic])
    deadline = time.monotonic() + 60
    while topic in admin.list_topics():
        assert time.monotonic() < deadline, f"topic {topic} was not deleted"
        time.sleep(0.1)
    admin.close()


def end_offsets(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """The end offset of every partition."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, group_id=None)
    try:
        partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        return {p.partition: offset for p, offset in consumer.end_offsets(partitions).items()}
    finally:
        consumer.close()


@contextmanager
def group_member(bootstrap_servers: str, group: str, topic: str) -> Iterator[None]:
    """A member of a consumer group, with partitions: librdkafka, because kafka-python 3.0.12 sometimes never joins."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": group, "client.id": "other", "enable.auto.commit": False}
    )
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while not consumer.assignment():
            assert time.monotonic() < deadline, f"group {group} got no partition of topic {topic}"
            consumer.poll(0.2)
        yield
    finally:
        consumer.close()
