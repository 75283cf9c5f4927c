"""Set-up of a fault test: a topic, a sink that writes to it in the background, and functions to observe and disturb the write.

The code under test has no hooks. Tests recognise the steps of a write by the state of the broker, and stop it there with SIGSTOP.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import OffsetSpec, TransactionState
from kafka.errors import KafkaError, TransactionalIdNotFoundError
from kafka.protocol.admin import AlterClientQuotasRequest
from kafka.protocol.api_key import ApiKey
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import READ_COMMITTED, READ_UNCOMMITTED
from dbt.adapters.upsert_kafka.sinks import NO_PLAN, Delivery, Target
from dbt.adapters.upsert_kafka.sinks.spark import SparkSink
from dbt.adapters.upsert_kafka.sinks.transaction import TransactionSink
from tests.services import Cluster, Record, read_topic

PATIENCE = 300.0
DONE = (TransactionState.EMPTY, TransactionState.COMPLETE_ABORT, TransactionState.COMPLETE_COMMIT)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition is true. Errors of a broker that is down for a while are ignored."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            if condition():
                return
        except KafkaError:
            time.sleep(0.2)
        time.sleep(0.01)
    raise AssertionError(f"timed out after {PATIENCE:.0f} s, waiting for {what}")


class Scene:
    """One topic and a sink that writes to it."""

    def __init__(
        self, spark: SparkSession, cluster: Cluster, topic: str, partitions: int = 4, config: Mapping[str, str] | None = None
    ) -> None:
        self.spark, self.cluster, self.topic, self.partitions = spark, cluster, topic, partitions
        self.transactional_id = f"dbt-upsert-kafka.{topic}"
        self.plan = NO_PLAN
        self.admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        self.create(config)

    def create(self, config: Mapping[str, str] | None) -> None:
        replicas = min(3, len(self.cluster.brokers))
        spec = {"num_partitions": self.partitions, "replication_factor": replicas, "configs": dict(config or {})}
        self.admin.create_topics({self.topic: spec}, wait_for_metadata=True)

    def recreate(self, config: Mapping[str, str]) -> None:
        """Create the topic again with other settings."""
        self.delete()
        self.create(config)

    def delete(self) -> None:
        self.admin.delete_topics([self.topic])
        wait_for(lambda: self.topic not in self.admin.list_topics(), "the deletion of the topic")

    def rows(self, number: int, value: str = "concat('value of ', id)") -> DataFrame:
        """Records with the keys 0, 1, 2, ..., checkpointed like the changes of a run."""
        columns = [
            "CAST(CAST(id AS STRING) AS BINARY) AS key",
            f"CAST(CAST({value} AS STRING) AS BINARY) AS value",
            "CAST(NULL AS INT) AS partition",
        ]
        return self.spark.range(0, number, 1, 2).selectExpr(*columns).localCheckpoint()

    def deliver(self, rows: DataFrame, guarantee: str = "exactly-once", **properties: str) -> Delivery:
        given = {name.replace("_", "."): value for name, value in properties.items()}
        kafka = KafkaSettings(self.cluster.bootstrap_servers, {"delivery.timeout.ms": str(int(PATIENCE * 1000)), **given})
        with kafka.admin() as admin:
            if guarantee == "exactly-once":
                target = Target(self.topic, self.partitions, kafka, admin, self.transactional_id, self.plan)
                return TransactionSink().deliver(rows, target)
            return SparkSink("at-least-once").deliver(rows, Target(self.topic, self.partitions, kafka, admin))

    @contextmanager
    def delivering(self, rows: DataFrame, guarantee: str = "exactly-once", **properties: str) -> Iterator[Future[Delivery]]:
        """Deliver in the background, slowly until `go_on` is called. Returns when the first messages are written."""
        self.slow_down()
        before = self.written()
        with ThreadPoolExecutor(1) as pool:
            delivery = pool.submit(self.deliver, rows, guarantee, **{"batch.size": "16384", **properties})
            self.wait_until_written(before + 1)
            assert not delivery.done()
            yield delivery

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Check that a read_committed consumer, reading all the time, gets exactly the records that are committed at the end."""
        over = Event()
        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(self._follow, over)
            try:
                yield
            finally:
                over.set()
        assert following.result() == [(record.partition, record.offset) for record in self.records()]

    def _follow(self, over: Event) -> list[tuple[int, int]]:
        """Partition and offset of every record that a consumer gets until the end."""
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
        """Limit what all producers together may write to a broker."""
        self._limit(bytes_per_second)

    def go_on(self) -> None:
        """Remove the limit."""
        self._limit(None)

    def records(self, isolation_level: str = "read_committed") -> list[Record]:
        return read_topic(self.cluster.bootstrap_servers, self.topic, isolation_level)

    def keys(self, isolation_level: str = "read_committed") -> list[int]:
        """The keys of all records, as sorted numbers."""
        return sorted(int(record.key or b"") for record in self.records(isolation_level))

    def count(self) -> tuple[int, int]:
        """Number of committed records and of distinct keys, counted by Spark."""
        options = {"kafka.bootstrap.servers": self.cluster.bootstrap_servers, "kafka.isolation.level": "read_committed"}
        source = self.spark.read.format("kafka").options(**options, subscribe=self.topic, startingOffsets="earliest")
        [found] = source.load().selectExpr("count(*) AS records", "count(DISTINCT key) AS keys").collect()
        return found.records, found["keys"]

    def written(self, isolation_level: int = READ_UNCOMMITTED) -> int:
        """Messages in the topic, committed or not, and transaction markers."""
        partitions = {TopicPartition(self.topic, p): OffsetSpec.LATEST for p in range(self.partitions)}
        found = self.admin.list_partition_offsets(partitions, isolation_level)
        return sum(end.offset for end in found.values())

    def transaction(self) -> TransactionState:
        found = self._described()
        return found.state if found else TransactionState.EMPTY

    def open_partitions(self) -> int:
        """Partitions of the open transaction. Its end adds a marker to each."""
        found = self._described()
        return sum(partition.topic == self.topic for partition in found.topic_partitions) if found else 0

    def _described(self) -> Any:
        """The coordinator's description of the transactional id; None if it was never used."""
        found: dict[str, Any] = {}

        def described() -> bool:
            # Any other error is retried.
            with suppress(TransactionalIdNotFoundError):
                found.update(self.admin.describe_transactions([self.transactional_id]))
            return True

        wait_for(described, "the coordinator's answer")
        return found.get(self.transactional_id)

    def replicas_in_sync(self) -> int:
        """In the partition that has the fewest."""
        [topic] = self.admin.describe_topics([self.topic])
        return min(len(partition["isr_nodes"]) for partition in topic["partitions"])

    def writers(self) -> list[int]:
        """Process ids of the Python workers that are connected to the cluster."""
        ports = [broker.node.port for broker in self.cluster.brokers]
        return [pid for pid in python_workers() if any(connections(port, pid) for port in ports)]

    def _limit(self, bytes_per_second: float | None) -> None:
        data = AlterClientQuotasRequest.EntryData
        operation = data.OpData(key="producer_byte_rate", value=bytes_per_second or 0.0, remove=bytes_per_second is None)
        entry = data(entity=[data.EntityData(entity_type="client-id", entity_name=None)], ops=[operation])
        request = AlterClientQuotasRequest(entries=[entry], validate_only=False)

        def limited() -> bool:
            # kafka-python has no public method for quotas.
            [answer] = self.admin._manager.run(self.admin._manager.send, request).entries
            return bool(answer.error_code == 0)

        wait_for(limited, "the brokers' answer to a quota")

    def wait_until_written(self, number: int = 1) -> None:
        wait_for(lambda: self.written() >= number, f"{number} messages in {self.topic}")

    def wait_until_over(self) -> None:
        """Wait until no transaction is open or being ended."""
        wait_for(self._is_over, f"the end of the transaction on {self.topic}")

    def _is_over(self) -> bool:
        if ApiKey.DescribeTransactions in self.admin.api_versions():
            return self.transaction() in DONE
        # Kafka before 3.0 can't describe transactions. Readers of committed records see the end of the topic.
        return self.written() == self.written(READ_COMMITTED)


def descendants(pid: int) -> dict[int, bytes]:
    """Processes that a process has started, directly or indirectly, with their command lines."""
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
    """Process ids of the Python workers of a Spark driver, by default of this process."""
    started = descendants(driver or os.getpid())
    # With coverage the daemon is tests.coverage_daemon.
    daemons = [pid for pid, command in started.items() if b"pyspark.daemon" in command or b"coverage_daemon" in command]
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
    """Whether the server has not yet read everything that a process has sent."""
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
    """Stop processes, as if their machine hung."""
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
