"""One Apache Kafka server (KRaft): its properties, its storage, its process, and why it did not start.

Leaves to `embedded` which processes share a broker. Tests build clusters from it.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dbt.adapters.upsert_kafka.embedded import supervisor
from dbt.adapters.upsert_kafka.errors import EmbeddedBrokerError
from dbt.adapters.upsert_kafka.java import fetch_jars

KAFKA_VERSION = "4.1.1"
JARS_VARIABLE = "UPSERT_KAFKA_BROKER_JARS"
START_SECONDS = 120
# With less free space the broker can't write the log that contains the reason.
FULL_DISK_BYTES = 1024 * 1024
LOOPBACK = "127.0.0.1"

# Chosen for a small and quick start, not for throughput.
JVM_FLAGS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss",
)

SINGLE_NODE = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "num.partitions": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
}

PORT_TAKEN = "its port is used by another program"
# Patterns in broker.log and what they mean. A broker reports why it did not start in its log only.
REASONS = {
    "No space left on device": "no space is left on the device with {folder}",
    "Address already in use|BindException": PORT_TAKEN,
    "Failed to acquire lock on file": "another Kafka process uses {folder}; stop it first",
    "AccessDeniedException|Permission denied": "{folder} is not writable",
    "OutOfMemoryError|insufficient memory": "there is not enough memory",
    "NoClassDefFoundError|ClassNotFoundException": "the jars in {jars} are incomplete; delete that folder to fetch them again",
    "InconsistentClusterId|CorruptRecord|[Nn]ode ID|cluster.id|meta.properties|MetaProperties|KafkaStorageException": (
        "its data in {folder} is damaged; delete that folder to start with no topics"
    ),
}


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """The folder with Kafka's jars: the one that the environment variable names, or the downloaded ones in the cache."""
    given = os.environ.get(JARS_VARIABLE)
    if given and version == KAFKA_VERSION:
        if not list(Path(given).glob("kafka_*.jar")):
            remedy = f"Set it to the `libs` folder of Kafka {version}."
            raise EmbeddedBrokerError(f"{JARS_VARIABLE}='{given}' contains no kafka_*.jar. {remedy}")
        return Path(given)
    # Kafka's artifact has no logging backend, and without one the broker would not log why it did not start.
    return fetch_jars("kafka", [f"org.apache.kafka:kafka_2.13:{version}", "org.slf4j:slf4j-simple:1.7.36"])[0].parent


def new_cluster_id() -> str:
    """A Kafka UUID: 22 characters, the first of which is not a dash, because a command line would read it as an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def free_ports(count: int, preferred: Iterable[int] = ()) -> list[int]:
    """Unused loopback ports. Preferred ports come first, so that a restarted broker keeps its address."""
    sockets: list[socket.socket] = []
    try:
        for port in [*preferred, *[0] * count]:
            if len(sockets) == count:
                break
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((LOOPBACK, port))
                sockets.append(s)
            except OSError:
                s.close()
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


@dataclass(frozen=True)
class Node:
    """One server of a cluster: broker and controller in one process."""

    folder: Path
    jars: Path
    java: str
    cluster_id: str
    port: int
    controller_port: int
    node_id: int = 1
    voters: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    jvm_flags: tuple[str, ...] = ()
    listeners: Mapping[str, int] = field(default_factory=dict)
    """Additional ports by security protocol."""

    @property
    def bootstrap_servers(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / "broker.log"

    @property
    def state_file(self) -> Path:
        return self.folder / "broker.json"

    @property
    def users_lock(self) -> Path:
        return self.folder / "users.lock"

    @property
    def supervisor_lock(self) -> Path:
        return self.folder / "supervisor.lock"

    def server_properties(self) -> dict[str, str]:
        """The contents of server.properties. Paths are relative to the node's folder, so that its name needs no escaping."""
        ports = {"PLAINTEXT": self.port, **self.listeners}
        addresses = ",".join(f"{protocol}://{LOOPBACK}:{port}" for protocol, port in ports.items())
        return {
            **SINGLE_NODE,
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": self.voters or f"{self.node_id}@{LOOPBACK}:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{addresses},CONTROLLER://{LOOPBACK}:{self.controller_port}",
            "advertised.listeners": addresses,
            "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in ports)]),
            "log.dirs": "data",
            **self.properties,
        }

    def command(self, main: str, *arguments: str) -> list[str]:
        """The command line of one of Kafka's main classes; its working directory must be the node's folder."""
        # The JVM expands the asterisk. A list of 46 paths would make the output of `ps` unreadable.
        return [self.java, *JVM_FLAGS, *self.jvm_flags, "-cp", str(self.jars / "*"), main, *arguments]

    def prepare(self) -> None:
        """Write server.properties, and format the storage if it is not formatted yet."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.folder / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in self.server_properties().items()))
        if formatted_as(self.folder):
            return
        # Formatting was interrupted, so no broker ever wrote data here.
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        done = subprocess.run(
            self.command("kafka.tools.StorageTool", "format", "-t", self.cluster_id, "-c", "server.properties"),
            cwd=self.folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode != 0:
            self.log.write_text(done.stdout + done.stderr)
            raise EmbeddedBrokerError(f"Kafka's storage could not be formatted: {self.reason()}.")
        (self.folder / "formatted").write_text(self.cluster_id)

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the server under its supervisor, which stops it when no process has a shared lock on `users_lock`.

        The caller must have such a lock, and calls `wait_until_ready` next.
        """
        self.log.unlink(missing_ok=True)
        self.users_lock.touch()
        with open(self.state_file, "a+") as alive, open(self.log, "wb") as log:
            fcntl.flock(alive, fcntl.LOCK_EX)
            state = {"port": self.port, "controller_port": self.controller_port, "cluster_id": self.cluster_id}
            files = [path.name for path in (self.state_file, self.users_lock, self.supervisor_lock, self.log)]
            broker = self.command("kafka.Kafka", "server.properties")
            return subprocess.Popen(
                [sys.executable, "-I", supervisor.__file__, *files, json.dumps(state), *broker],
                # In its own session: Ctrl-C in dbt must not stop a broker that other processes use.
                cwd=self.folder, stdin=alive, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the server answers.

        Raises:
            EmbeddedBrokerError: the server ended, or did not answer in time.
        """
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise EmbeddedBrokerError(f"The embedded Kafka broker did not start: {self.reason()}. Its log: {self.log}")
            if answers(self.bootstrap_servers, self.cluster_id):
                return
            time.sleep(0.1)
        raise EmbeddedBrokerError(f"The embedded Kafka broker did not answer within {START_SECONDS} s. Its log: {self.log}")

    def reason(self) -> str:
        """Why the server ended, from its log."""
        if shutil.disk_usage(self.folder).free < FULL_DISK_BYTES:
            return REASONS["No space left on device"].format(folder=self.folder)
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        for pattern, meaning in REASONS.items():
            if re.search(pattern, text):
                return meaning.format(folder=self.folder, jars=self.jars)
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", "SLF4J"))]
        errors = [line for line in lines if re.search(r"ERROR|FATAL|Exception|Error", line)]
        return (errors or lines or ["its log is empty"])[-1].rstrip(".")


def answers(bootstrap_servers: str, cluster_id: str) -> bool:
    """Whether a broker of this cluster answers requests at the address."""
    host, port = bootstrap_servers.rsplit(":", 1)
    # Kafka opens its port last. A kafka-python client before that would log refused connections.
    with socket.socket() as s:
        s.settimeout(1)
        if s.connect_ex((host, int(port))) != 0:
            return False
    # Here, because most commands have no embedded broker, and it starts while kafka-python is imported.
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    try:
        client = KafkaAdminClient(bootstrap_servers=bootstrap_servers, request_timeout_ms=10_000, bootstrap_timeout_ms=10_000)
    except KafkaError:
        return False
    try:
        found = client.describe_cluster()
        return found["cluster_id"] == cluster_id and bool(found["brokers"])
    except KeyError:
        # kafka-python can't read the answer of a broker before 3.7, which runs in tests only: it answers.
        return True
    except KafkaError:
        return False
    finally:
        client.close()


def formatted_as(folder: Path) -> str | None:
    """The cluster id with which the storage in a node's folder was formatted; None if formatting did not finish."""
    formatted = folder / "formatted"
    return formatted.read_text().strip() or None if formatted.exists() else None


def read_state(path: Path) -> dict[str, int | str] | None:
    """The state that the supervisor wrote; None if the file is missing or damaged."""
    try:
        state = json.loads(path.read_text())
        return state if {"port", "controller_port", "cluster_id"} <= state.keys() else None
    except (OSError, ValueError, AttributeError):
        return None


def end(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process, which may have ended already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
