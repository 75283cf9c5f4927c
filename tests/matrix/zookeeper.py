"""A broker of Kafka before 3.3, which needs ZooKeeper: transactions and ACLs do not work in the KRaft mode of those versions."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from dbt.adapters.upsert_kafka.embedded.node import LOOPBACK, SINGLE_NODE, free_ports, kafka_jars
from dbt.adapters.upsert_kafka.java import find_java
from tests.services import Service

START_SECONDS = 90
JVM_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC")


class ZooKeeperCluster(Service):
    """One broker and one ZooKeeper on loopback, started on entry and removed on exit.

    Args:
        properties: of the broker, which override the defaults.
    """

    def __init__(self, version: str, properties: Mapping[str, str] | None = None) -> None:
        self._properties = properties or {}
        self._folder = Path(tempfile.mkdtemp(prefix="upsert-kafka-test-"))
        self._jars = kafka_jars(version)
        self._port, self._zookeeper_port = free_ports(2)
        self._processes: list[subprocess.Popen[bytes]] = []
        # As far as tests of any cluster use it.
        self.brokers = [SimpleNamespace(node=SimpleNamespace(port=self._port))]

    @property
    def bootstrap_servers(self) -> str:
        return f"{LOOPBACK}:{self._port}"

    def start(self) -> None:
        properties = {
            **{name: value for name, value in SINGLE_NODE.items() if not name.startswith("share.")},
            "broker.id": "1",
            "zookeeper.connect": f"{LOOPBACK}:{self._zookeeper_port}",
            "zookeeper.connection.timeout.ms": "60000",
            "listeners": f"PLAINTEXT://{self.bootstrap_servers}",
            "log.dirs": "data",
            **self._properties,
        }
        (self._folder / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        zookeeper = {"clientPort": str(self._zookeeper_port), "clientPortAddress": LOOPBACK, "dataDir": "zookeeper"}
        zookeeper |= {"admin.enableServer": "false", "tickTime": "2000"}
        (self._folder / "zookeeper.properties").write_text("".join(f"{name}={value}\n" for name, value in zookeeper.items()))
        self._launch("org.apache.zookeeper.server.quorum.QuorumPeerMain", "zookeeper.properties")
        self._launch("kafka.Kafka", "server.properties")
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert all(process.poll() is None for process in self._processes), f"the broker ended: {self._log()}"
            assert time.monotonic() < deadline, f"the broker did not answer: {self._log()}"
            time.sleep(0.5)

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _launch(self, main: str, properties: str) -> None:
        command = [str(find_java()), *JVM_FLAGS, "-cp", str(self._jars / "*"), main, properties]
        with open(self._folder / "log", "ab") as log:
            self._processes.append(subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log))

    def _answers(self) -> bool:
        try:
            client = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers, bootstrap_timeout_ms=2000)
        except KafkaError:
            return False
        client.close()
        return True

    def _log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-2000:]
