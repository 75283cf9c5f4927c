"""The network between clients and brokers: it delays, loses and reorders requests and answers, and brokers restart and move.

Stands in for kafka-python's event loop and connections, of which the client uses a few methods. A request whose answer does not
come in time fails for the client, which repeats it. It may still arrive later: that is how requests are repeated and reordered.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kafka import errors
from kafka.future import Future

from dbt.adapters.upsert_kafka.sinks.protocol import NEXT_EPOCH_SINCE, TRANSACTION_VERSION
from tests.simulator.brokers import Brokers, Partition
from tests.simulator.scheduler import Scheduler

NODES = (1, 2, 3)
REQUEST_SECONDS, TICK = 2.0, 1e-6
NOT_LEADER, NOT_COORDINATOR, COORDINATOR_LOADING = 6, 16, 14


class Faults:
    """How often what goes wrong, from the seed. Some schedules have no faults of a kind at all."""

    def __init__(self, scheduler: Scheduler) -> None:
        random = scheduler.random
        self.lost_request = random.choice([0, 0, 0.02, 0.1])
        self.late_request = random.choice([0, 0, 0.02, 0.1])
        self.lost_answer = random.choice([0, 0.02, 0.1])
        self.latency = random.choice([0.001, 0.01, 0.2])
        self.moves = random.choice([0, 0, 2, 6])
        """Restarts of brokers, with moves of leaders and coordinators."""


class Network:
    """All connections of all simulated processes."""

    def __init__(self, scheduler: Scheduler, brokers: Brokers, faults: Faults) -> None:
        self.scheduler, self.brokers, self.faults = scheduler, brokers, faults
        self.leaders: dict[Partition, int] = {}
        self.coordinator = 1
        self.is_loading = False
        self.down: set[int] = set()
        self.requests = 0
        self._connections: dict[tuple[int, int], float] = {}

    def connect(self, _: object) -> tuple[Any, Any]:
        connections = Connections(self)
        return connections, connections

    def now(self) -> float:
        return self.scheduler.time

    def leader(self, partition: Partition) -> int:
        return self.leaders.setdefault(partition, self.scheduler.random.choice(NODES))

    def move(self) -> None:
        """Restart a broker; others lead its partitions from then on, and coordinate."""
        node = self.scheduler.random.choice(NODES)
        others = [other for other in NODES if other != node and other not in self.down]
        if not others:
            return
        self.down.add(node)
        for partition, leader in self.leaders.items():
            if leader == node:
                self.leaders[partition] = self.scheduler.random.choice(others)
        if self.coordinator == node:
            self.coordinator, self.is_loading = self.scheduler.random.choice(others), True
            self.scheduler.after(self.scheduler.random.uniform(0, 2), self._loaded)
        self.scheduler.after(self.scheduler.random.uniform(0.1, 5), lambda: self.down.discard(node))

    def _loaded(self) -> None:
        self.is_loading = False

    def send(self, client: int, request: Any, node: int) -> Future:
        random, faults = self.scheduler.random, self.faults
        self.requests += 1
        answer = Future()
        fate = random.random()
        delay = random.expovariate(1 / faults.latency)
        if node in self.down or fate < faults.lost_request:
            self.scheduler.after(delay, lambda: _fail(answer, errors.KafkaConnectionError("socket disconnected")))
            return answer
        if fate < faults.lost_request + faults.late_request:
            # The connection breaks; what was sent on it arrives later.
            self.scheduler.after(delay, lambda: _fail(answer, errors.RequestTimedOutError()))
            self.scheduler.after(random.uniform(0, 30), lambda: self.handle(request, node))
            return answer
        # Requests on a connection arrive in order.
        arrives = max(self.scheduler.time + delay, self._connections.get((client, node), 0) + TICK)
        self._connections[client, node] = arrives
        self.scheduler.after(arrives - self.scheduler.time, lambda: self._arrive(request, node, answer))
        return answer

    def _arrive(self, request: Any, node: int, answer: Future) -> None:
        random, faults = self.scheduler.random, self.faults
        if node in self.down:
            _fail(answer, errors.KafkaConnectionError("socket disconnected"))
            return
        value = self.handle(request, node)
        if random.random() < faults.lost_answer:
            self.scheduler.after(random.uniform(0, REQUEST_SECONDS), lambda: _fail(answer, errors.RequestTimedOutError()))
        else:
            self.scheduler.after(random.expovariate(1 / faults.latency), lambda: _succeed(answer, value))

    def handle(self, request: Any, node: int) -> Any:
        """A broker's answer."""
        handlers: dict[str, Callable[[Any, int], Any]] = {
            "ApiVersionsRequest": self._api_versions,
            "FindCoordinatorRequest": self._find_coordinator,
            "InitProducerIdRequest": self._init_producer_id,
            "AddPartitionsToTxnRequest": self._add_partitions,
            "EndTxnRequest": self._end,
            "ProduceRequest": self._produce,
        }
        return handlers[type(request).__name__](request, node)

    def _find_coordinator(self, _: Any, __: int) -> Any:
        return SimpleNamespace(error_code=0, node_id=self.coordinator)

    def _api_versions(self, _: Any, __: int) -> Any:
        feature = SimpleNamespace(name=TRANSACTION_VERSION, max_version_level=self.brokers.transaction_version)
        return SimpleNamespace(error_code=0, finalized_features=[feature])

    def _not_coordinator(self, node: int) -> int:
        return NOT_COORDINATOR if node != self.coordinator else COORDINATOR_LOADING if self.is_loading else 0

    def _init_producer_id(self, request: Any, node: int) -> Any:
        if code := self._not_coordinator(node):
            return SimpleNamespace(error_code=code)
        code, producer_id, epoch = self.brokers.init_producer_id(
            request.transactional_id, request.transaction_timeout_ms / 1000, request.producer_id, request.producer_epoch
        )
        return SimpleNamespace(error_code=code, producer_id=producer_id, producer_epoch=epoch)

    def _add_partitions(self, request: Any, node: int) -> Any:
        [topic] = request.v3_and_below_topics
        partitions = {Partition(topic.name, number) for number in topic.partitions}
        code = self._not_coordinator(node) or self.brokers.add_partitions(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            partitions,
        )
        results = [SimpleNamespace(partition_error_code=code) for _ in partitions]
        return SimpleNamespace(results_by_topic_v3_and_below=[SimpleNamespace(results_by_partition=results)])

    def _end(self, request: Any, node: int) -> Any:
        if request._min_version >= NEXT_EPOCH_SINCE:
            code, producer_id, epoch = self._not_coordinator(node), -1, -1
            if not code:
                code, producer_id, epoch = self.brokers.abort(
                    request.transactional_id, request.producer_id, request.producer_epoch
                )
            return SimpleNamespace(error_code=code, producer_id=producer_id, producer_epoch=epoch)
        code = self._not_coordinator(node) or self.brokers.end(
            request.transactional_id, request.producer_id, request.producer_epoch, request.committed
        )
        return SimpleNamespace(error_code=code)

    def _produce(self, request: Any, node: int) -> Any:
        [topic] = request.topic_data
        [data] = topic.partition_data
        partition = Partition(topic.name, data.index)
        producer_id, epoch, sequence, records = json.loads(data.records)
        code, offset = NOT_LEADER, -1
        if self.leader(partition) == node:
            code, offset = self.brokers.produce(partition, producer_id, epoch, sequence, tuple(map(tuple, records)))
        answer = SimpleNamespace(error_code=code, error_message=None, base_offset=offset)
        return SimpleNamespace(responses=[SimpleNamespace(partition_responses=[answer])])


def _fail(answer: Future, error: Exception) -> None:
    if not answer.is_done:
        answer.failure(error)


def _succeed(answer: Future, value: Any) -> None:
    if not answer.is_done:
        answer.success(value)


class Connections:
    """Event loop, connections and metadata of one client."""

    _clients = 0

    def __init__(self, network: Network) -> None:
        Connections._clients += 1
        self._number = Connections._clients
        self._network = network
        self._known: dict[Partition, int] = {}
        self.cluster = self
        self.config: dict[str, Any] = {"request_timeout_ms": REQUEST_SECONDS * 1000}

    def bootstrap(self, timeout_ms: float) -> None:
        del timeout_ms
        self._network.scheduler.sleep(self._network.faults.latency)
        if self._network.scheduler.random.random() < self._network.faults.lost_request / 2:
            raise errors.NodeNotReadyError

    def close(self) -> None:
        """Nothing to close. What was sent may still arrive."""

    def add_topic(self, _: str) -> None:
        """Leaders are looked up when they are needed."""

    def least_loaded_node(self) -> int:
        return self._network.scheduler.random.choice(NODES)

    def add_coordinator(self, answer: Any, *_: object) -> int:
        return int(answer.node_id)

    def leader_for_partition(self, partition: Any) -> int:
        wanted = Partition(partition.topic, partition.partition)
        if wanted not in self._known:
            self._known[wanted] = self._network.leader(wanted)
        return self._known[wanted]

    def request_update(self) -> Future:
        self._known.clear()
        return Future().success(None)

    def send(self, request: Any, node_id: int) -> Future:
        return self._network.send(self._number, request, node_id)

    def poll(self, timeout_ms: float | None = None, future: Future | None = None) -> None:
        self._network.scheduler.sleep(float("inf") if timeout_ms is None else timeout_ms / 1000, future)
