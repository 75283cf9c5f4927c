"""Simulated runs: drivers that compare and publish with the sink's own steps, tasks that write with the sink's own client."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from kafka import TopicPartition
from kafka.future import Future
from pyspark.errors import PySparkException

from dbt.adapters.upsert_kafka.errors import DeliveryError, TopicMovedError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.publish.memory import Memory
from dbt.adapters.upsert_kafka.sinks import Delivery, StateWrite, Target, TransactionPlan
from dbt.adapters.upsert_kafka.sinks.protocol import Client
from dbt.adapters.upsert_kafka.sinks.record_batch import Producer
from dbt.adapters.upsert_kafka.sinks.steps import Report, Steps, WriteError
from dbt.adapters.upsert_kafka.sinks.writer import PartitionState, Writer
from dbt.adapters.upsert_kafka.state.store import Access
from dbt.adapters.upsert_kafka.state.trust import NOTHING
from tests.simulator.brokers import LAST_EPOCH, Brokers, Partition
from tests.simulator.network import REQUEST_SECONDS, Faults, Network
from tests.simulator.scheduler import KilledError, Process, Scheduler

TOPIC, STATE_TOPIC, NAME = "orders", "state", "dbt.orders"
PARTITIONS, KEYS, TASKS = 3, 12, 2
STATE = Partition(STATE_TOPIC, 0)
TRANSACTION_SECONDS = 60.0
COMPARISONS = 3
FIRST = "first"
"""The value of the first of two records that a run writes for each key."""
Table = dict[int, str]


@dataclass
class Run:
    """What became of one run of the model."""

    name: str
    wanted: Table
    """The rows of its SELECT."""
    process: Process | None = None
    outcome: str = "unfinished"
    """`published`, `unchanged`, `moved`, `killed`, or the message of its error."""
    attempts: int = 0


class World:
    """One schedule: brokers, network, runs, and what disturbs them, all from one seed.

    Args:
        verifies: see `Brokers`.
        tasks_outlive: whether tasks and requests of a failed write may still arrive at the brokers afterwards.
        appends_fail: whether the coordinator's log may have too few replicas.
    """

    def __init__(self, seed: int, verifies: bool = True, tasks_outlive: bool = True, appends_fail: bool = True) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.scheduler = Scheduler(self.random)
        first_epoch = self.random.choice([0, 0, LAST_EPOCH - 3])
        # Brokers that do not verify batches have no transaction.version.
        version = self.random.choice([1, 2]) if verifies else 0
        self.brokers = Brokers(self.scheduler.now, self._later, version, verifies, first_epoch)
        self.faults = Faults(self.scheduler)
        # With numbers of its own: the schedule of a seed is otherwise the same without failing appends.
        self.more = Random(f"more {seed}")
        self.failed_append = self.more.choice([0, 0, 0.1, 0.4]) if appends_fail else 0
        self.brokers.append_fails = lambda: self.more.random() < self.failed_append
        self.network = Network(self.scheduler, self.brokers, self.faults)
        self.tasks_outlive = tasks_outlive
        if not tasks_outlive:
            self.faults.late_request = 0
        self.lost_task = self.random.choice([0, 0, 0.1, 0.4])
        self.killed_run = self.random.choice([0, 0, 0.3])
        self.patience = self.random.choice([0.5, 20.0])
        """For how many seconds a client repeats a request."""
        self.has_expired = False
        """Whether the transactional id was forgotten before the last run."""
        self.runs: list[Run] = []
        self.processes: list[Process] = []

    def play(self) -> None:
        """Let up to three runs compete, then let everything come to rest, then let one more run publish."""
        for number in range(self.random.choice([1, 2, 2, 3])):
            self._start_later(Run(f"run {number}", self._rows(number)), self.random.uniform(0, 3))
        for _ in range(self.faults.moves):
            self.scheduler.after(self.random.uniform(0, 8), self.network.move)
        self.scheduler.run(until=600)
        # The network recovers. A transaction that nobody ends times out.
        self.faults.lost_request = self.faults.late_request = self.faults.lost_answer = 0
        self.lost_task, self.killed_run, self.failed_append, self.patience = 0, 0, 0, 60.0
        if self.more.random() < 0.3:
            self.has_expired = self.brokers.expire(NAME)
        self._start_later(Run("last run", self._rows(9)), 0)
        self.scheduler.run(until=1200)
        for process in self.processes:
            process.kill()
        self.scheduler.run(until=2000)

    def table(self) -> Table:
        """The latest value of each key for a read_committed reader."""
        found = {}
        for number in range(PARTITIONS):
            for (_, _, key, value), _ in self.brokers.log(Partition(TOPIC, number)).committed():
                found[key] = value
        return {key: value for key, value in found.items() if value is not None}

    def high_watermarks(self) -> dict[int, int]:
        return {number: self.brokers.log(Partition(TOPIC, number)).end for number in range(PARTITIONS)}

    def state(self) -> str | None:
        """The run in the newest state record."""
        records = self.brokers.log(STATE).committed()
        return records[-1][0][0] if records else None

    def spawn(self, name: str, body: Any) -> Process:
        process = self.scheduler.start(name, body)
        self.processes.append(process)
        return process

    def _rows(self, number: int) -> Table:
        return {key: f"{self.random.randrange(3)} of {number}" for key in range(KEYS) if self.random.random() < 0.7}

    def _later(self, action: Any) -> None:
        self.scheduler.after(self.random.expovariate(1 / max(self.faults.latency, 0.05)), action)

    def _start_later(self, run: Run, seconds: float) -> None:
        self.runs.append(run)

        def start() -> None:
            run.process = self.spawn(run.name, lambda: publish(self, run))
            if self.random.random() < self.killed_run:
                self.scheduler.after(self.random.expovariate(1), run.process.kill)

        self.scheduler.after(seconds, start)


def publish(world: World, run: Run) -> None:
    """A run as `publish.pipeline` does it: recover, compare, deliver, and again if the topic has moved."""
    try:
        for _ in range(COMPARISONS):
            try:
                run.outcome = _publish_once(world, run)
                return
            except TopicMovedError:
                run.outcome = "moved"
    except KilledError:
        run.outcome = "killed"
        raise
    except (WriteError, DeliveryError) as error:
        run.outcome = str(error.msg)


def _publish_once(world: World, run: Run) -> str:
    Simulated(world, run, {}, None).recover()
    topic = Topic(TOPIC, PARTITIONS, written=world.high_watermarks())
    _pause(world)
    before, compared = world.table(), _Memory(world)
    changes = {key: value for key, value in run.wanted.items() if before.get(key) != value}
    changes.update({key: cast(Any, None) for key in before if key not in run.wanted})
    # The comparison takes a while.
    world.scheduler.sleep(world.random.expovariate(2))
    if not changes:
        return "unchanged"

    def check() -> None:
        _pause(world)
        compared.check_unmoved(topic)

    plan = TransactionPlan(check, StateWrite(STATE_TOPIC, lambda _: (b"", b"")))
    Simulated(world, run, changes, plan).deliver()
    return "published"


class _Record:
    """A state record that consists of the name of its run."""

    owner = "shop.orders"

    def __init__(self, run: str) -> None:
        self.run = run

    def encode(self) -> bytes:
        return self.run.encode()


class _Memory(Memory):
    """What the run knows from the state record, with the sink's own check of the topic. The admin client reads the logs."""

    def __init__(self, world: World) -> None:
        def get(*_: object) -> _Record | None:
            state = world.state()
            return None if state is None else _Record(state)

        def offsets(asked: Iterable[TopicPartition], *_: object) -> dict[TopicPartition, Any]:
            ends = world.high_watermarks()
            return {partition: SimpleNamespace(offset=ends[partition.partition]) for partition in asked}

        admin, store = SimpleNamespace(list_partition_offsets=offsets), SimpleNamespace(get=get)
        request = SimpleNamespace(owner=_Record.owner)
        super().__init__(cast(Any, admin), cast(Any, request), cast(Any, store), Access.FULL, cast(Any, get()), NOTHING)


def _pause(world: World) -> None:
    world.scheduler.sleep(world.random.expovariate(1 / world.faults.latency))


class Simulated(Steps):
    """The sink's steps with simulated tasks and connections."""

    def __init__(self, world: World, run: Run, changes: Table, plan: TransactionPlan | None) -> None:
        target = Target(TOPIC, PARTITIONS, KafkaSettings("simulated:1", {}), cast(Any, None), NAME, plan or TransactionPlan())
        super().__init__(target, NAME, int(TRANSACTION_SECONDS * 1000), world.scheduler.now)
        self._world, self._run, self._changes = world, run, changes

    def connect(self) -> Client:
        return Client({}, self._world.patience, network=cast(Any, self._world.network))

    def prepare(self) -> None:
        self._run.attempts += 1

    def write(self, producer: Producer) -> Sequence[Report]:
        world = self._world
        job = Job()
        tag = (self._run.name, self._run.attempts)
        tasks: list[Process] = []
        for number in range(TASKS):
            mine = {key: value for key, value in self._changes.items() if key % PARTITIONS % TASKS == number}
            task = world.spawn(f"{self._run.name} task {number}", partial(self._task, job, producer, tag, mine))
            if world.random.random() < world.lost_task:
                world.scheduler.after(world.random.expovariate(5), partial(job.lose, task, world))
            tasks.append(task)
        world.scheduler.sleep(float("inf"), job.over)
        if job.error is not None:
            if not world.tasks_outlive:
                for task in tasks:
                    task.kill()
                world.scheduler.sleep(3 * REQUEST_SECONDS)
            raise PySparkException(job.error)
        return job.reports

    def _task(self, job: Job, producer: Producer, tag: tuple[str, int], rows: Table) -> None:
        try:
            with self.connect() as client:
                writer = Writer(client, producer, TOPIC)
                for key, value in sorted(rows.items()):
                    # Two records for each key, so that their order shows.
                    for record in ([*tag, key, FIRST], [*tag, key, value]):
                        partition = key % PARTITIONS
                        writer.add_partitions([partition])
                        writer.write(partition, 1, _payload(producer, writer.next_sequence(partition), [record]))
                writer.flush()
        except KilledError:
            raise
        except Exception as error:
            job.fail(f"Job aborted\n{type(error).__module__}.{type(error).__name__}: {error}")
            return
        job.complete(writer.partitions)

    def write_state(self, client: Client, producer: Producer, delivery: Delivery) -> None:
        writer = Writer(client, producer, STATE_TOPIC)
        writer.add_partitions([0])
        writer.write(0, 1, _payload(producer, 0, [[self._run.name, self._run.attempts, 0, ""]]))
        writer.flush()

    def wait_until_visible(self, reports: Sequence[Report]) -> None:
        """The checks look at the end of the schedule, when all markers are written."""


def _payload(producer: Producer, sequence: int, records: list[Any]) -> bytes:
    return json.dumps([producer.producer_id, producer.epoch, sequence, records]).encode()


@dataclass
class Job:
    """A Spark job: over when all tasks are, or when the first has failed."""

    over: Future = field(default_factory=Future)
    reports: list[PartitionState] = field(default_factory=list)
    tasks: int = 0
    error: str | None = None

    def complete(self, reports: list[PartitionState]) -> None:
        self.tasks += 1
        self.reports += reports
        if self.tasks == TASKS and not self.over.is_done:
            self.over.success(None)

    def fail(self, error: str) -> None:
        if not self.over.is_done:
            self.error = error
            self.over.success(None)

    def lose(self, task: Process, world: World) -> None:
        """Spark believes that a task is lost. Its process ends now, later, or not at all."""
        if task.done.is_done:
            return
        self.fail("Job aborted\nPython worker exited unexpectedly (crashed)")
        world.scheduler.after(world.random.choice([0, 0.5, 60]), task.kill)
