"""The stage of a fault: a topic, a sink that writes to it in the background, and what can be seen and done meanwhile.

Stages of a write are recognised by what the broker tells, and held by stopping a process; the code under test has no hooks.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin._partitions import OffsetSpec
from kafka.admin._transactions import TransactionState
from kafka.errors import KafkaError, TransactionalIdNotFoundError
from kafka.protocol.admin import AlterClientQuotasRequest
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from dbt.adapters.upsert_kafka.sinks import Delivery, Target
from dbt.adapters.upsert_kafka.sinks.spark import SparkSink
from dbt.adapters.upsert_kafka.sinks.transaction import TransactionSink
from tests.services import Cluster, Record, read_topic

PATIENCE = 300.0
DONE = (TransactionState.EMPTY, TransactionState.COMPLETE_ABORT, TransactionState.COMPLETE_COMMIT)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Look until it is so; a broker that is down for a moment is asked again."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            if condition():
                return
        except KafkaError:
            time.sleep(0.2)
        time.sleep(0.01)
    raise AssertionError(f"waited {PATIENCE:.0f} s in vain for: {what}")


class Scene:
    """One topic and who writes to it."""

    def __init__(
        self, spark: SparkSession, cluster: Cluster, topic: str, partitions: int = 4, config: Mapping[str, str] | None = None
    ) -> None:
        self.spark, self.cluster, self.topic, self.partitions = spark, cluster, topic, partitions
        self.transactional_id = f"dbt-upsert-kafka.{topic}"
        self.admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        self.create(config)

    def create(self, config: Mapping[str, str] | None) -> None:
        replicas = min(3, len(self.cluster.brokers))
        spec = {"num_partitions": self.partitions, "replication_factor": replicas, "configs": dict(config or {})}
        self.admin.create_topics({self.topic: spec}, wait_for_metadata=True)

    def recreate(self, config: Mapping[str, str]) -> None:
        """The same topic with other settings."""
        self.delete()
        self.create(config)

    def delete(self) -> None:
        self.admin.delete_topics([self.topic])
        wait_for(lambda: self.topic not in self.admin.list_topics(), "the topic to be gone")

    def rows(self, number: int, value: str = "concat('value of ', id)") -> DataFrame:
        """Records with the numbers from 0 as keys, computed and kept as a run's changes are."""
        columns = [
            "CAST(CAST(id AS STRING) AS BINARY) AS key",
            f"CAST(CAST({value} AS STRING) AS BINARY) AS value",
            "CAST(NULL AS INT) AS partition",
        ]
        return self.spark.range(0, number, 1, 2).selectExpr(*columns).localCheckpoint()

    def deliver(self, rows: DataFrame, guarantee: str = "exactly-once", **properties: str) -> Delivery:
        given = {name.replace("_", "."): value for name, value in properties.items()}
        kafka = KafkaSettings(self.cluster.bootstrap_servers, {"delivery.timeout.ms": str(int(PATIENCE * 1000)), **given})
        if guarantee == "exactly-once":
            return TransactionSink().deliver(rows, Target(self.topic, self.partitions, kafka, self.transactional_id))
        return SparkSink("at-least-once").deliver(rows, Target(self.topic, self.partitions, kafka))

    @contextmanager
    def delivering(self, rows: DataFrame, guarantee: str = "exactly-once", **properties: str) -> Iterator[Future[Delivery]]:
        """Deliver in the background, slowly until `go_on`; here when the first messages are written."""
        self.slow_down()
        before = self.written()
        with ThreadPoolExecutor(1) as pool:
            delivery = pool.submit(self.deliver, rows, guarantee, **{"batch.size": "16384", **properties})
            self.wait_until_written(before + 1)
            assert not delivery.done()
            yield delivery

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Follow the topic as a read_committed reader does; it must have seen what is committed in the end, and nothing else."""
        over = Event()
        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(self._follow, over)
            try:
                yield
            finally:
                over.set()
        assert following.result() == [(record.partition, record.offset) for record in self.records()]

    def _follow(self, over: Event) -> list[tuple[int, int]]:
        """Partition and offset of every record that a reader was given until the end."""
        servers = self.cluster.bootstrap_servers
        consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed")
        partitions = [TopicPartition(self.topic, p) for p in range(self.partitions)]
        consumer.assign(partitions)
        seen: list[tuple[int, int]] = []
        try:
            while not over.is_set() or any(consumer.position(p) < end for p, end in consumer.end_offsets(partitions).items()):
                for batch in consumer.poll(timeout_ms=200).values():
                    seen += [(record.partition, record.offset) for record in batch]
        finally:
            consumer.close()
        return sorted(seen)

    def slow_down(self, bytes_per_second: float = 8_000) -> None:
        """Let all producers together write no more than this to a broker."""
        self._limit(bytes_per_second)

    def go_on(self) -> None:
        """Full speed."""
        self._limit(None)

    def records(self, isolation_level: str = "read_committed") -> list[Record]:
        return read_topic(self.cluster.bootstrap_servers, self.topic, isolation_level)

    def keys(self, isolation_level: str = "read_committed") -> list[int]:
        """The numbers that are keys in the topic, sorted, each as often as it is there."""
        return sorted(int(record.key or b"") for record in self.records(isolation_level))

    def count(self) -> tuple[int, int]:
        """Committed records and different keys, counted by Spark where there are too many to look at."""
        options = {"kafka.bootstrap.servers": self.cluster.bootstrap_servers, "kafka.isolation.level": "read_committed"}
        source = self.spark.read.format("kafka").options(**options, subscribe=self.topic, startingOffsets="earliest")
        [found] = source.load().selectExpr("count(*) AS records", "count(DISTINCT key) AS keys").collect()
        return found.records, found["keys"]

    def written(self) -> int:
        """Messages in the topic, whoever may see them."""
        partitions = {TopicPartition(self.topic, p): OffsetSpec.LATEST for p in range(self.partitions)}
        return sum(found.offset for found in self.admin.list_partition_offsets(partitions).values())

    def transaction(self) -> TransactionState:
        found = self._described()
        return found.state if found else TransactionState.EMPTY

    def open_partitions(self) -> int:
        """Partitions of a transaction that is not over: so many markers end it."""
        found = self._described()
        return len(found.topic_partitions) if found else 0

    def _described(self) -> Any:
        """What the coordinator knows of the transactional id; None if it was never used."""
        found: dict[str, Any] = {}

        def asked() -> bool:
            try:
                found.update(self.admin.describe_transactions([self.transactional_id]))
            except TransactionalIdNotFoundError:
                return True
            return True

        wait_for(asked, "the coordinator's answer")
        return found.get(self.transactional_id)

    def replicas_in_sync(self) -> int:
        """Of the partition that has fewest."""
        [topic] = self.admin.describe_topics([self.topic])
        return min(len(partition["isr_nodes"]) for partition in topic["partitions"])

    def writers(self) -> list[int]:
        """Python workers of this process that are connected to the cluster."""
        ports = [broker.node.port for broker in self.cluster.brokers]
        return [pid for pid in python_workers() if any(connections(port, pid) for port in ports)]

    def _limit(self, bytes_per_second: float | None) -> None:
        data = AlterClientQuotasRequest.EntryData
        operation = data.OpData(key="producer_byte_rate", value=bytes_per_second or 0.0, remove=bytes_per_second is None)
        entry = data(entity=[data.EntityData(entity_type="client-id", entity_name=None)], ops=[operation])
        request = AlterClientQuotasRequest(entries=[entry], validate_only=False)

        def limited() -> bool:
            [answer] = self.admin._manager.run(self.admin._manager.send, request).entries
            return bool(answer.error_code == 0)

        wait_for(limited, "the brokers' answer to a quota")

    def wait_until_written(self, number: int = 1) -> None:
        wait_for(lambda: self.written() >= number, f"{number} messages in {self.topic}")

    def wait_until_over(self) -> None:
        """Wait until no transaction is open, nor about to end."""
        wait_for(lambda: self.transaction() in DONE, f"the end of the transaction on {self.topic}, which is {self.transaction()}")


def descendants(pid: int) -> dict[int, bytes]:
    """Processes that a process started, directly or not, with their command lines."""
    children: dict[int, list[int]] = {}
    commands: dict[int, bytes] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                commands[int(entry.name)] = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, new = [], [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, [])]
        found += new
    return {child: commands[child] for child in found}


def python_workers(driver: int | None = None) -> list[int]:
    """Process ids of the Python workers of a Spark driver, this process unless told otherwise."""
    daemons = [pid for pid, command in descendants(driver or os.getpid()).items() if b"pyspark.daemon" in command]
    return [worker for daemon in daemons for worker in descendants(daemon)]


def connections(server_port: int, *pids: int) -> set[int]:
    """Local ports of the processes' connections to a server on this machine."""
    inodes = set()
    for pid in pids:
        try:
            inodes |= {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        except OSError:
            continue
    return {local for local, remote, _, inode in _sockets() if remote == server_port and f"socket:[{inode}]" in inodes}


def has_unread_bytes(server_port: int, client: int) -> bool:
    """Whether a process has sent something that the server has not taken yet."""
    ports = connections(server_port, client)
    return any(local == server_port and remote in ports and unread for local, remote, unread, _ in _sockets())


def _sockets() -> Iterator[tuple[int, int, int, str]]:
    """Local port, remote port, unread bytes and inode of every TCP connection."""
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            local, remote = (int(address.rpartition(":")[2], 16) for address in fields[1:3])
            yield local, remote, int(fields[4].partition(":")[2], 16), fields[9]


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """Processes that do nothing meanwhile, as on a machine that hangs."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue
