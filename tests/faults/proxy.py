"""A TCP proxy between clients and one broker, which loses, delays and repeats chosen requests, and counts all of them.

The broker advertises the proxy's address, so that every client talks to it through the proxy, also Spark's workers.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Self

from dbt.adapters.upsert_kafka.embedded.node import LOOPBACK, free_ports
from tests.services import Cluster

NAMES = {
    0: "Produce",
    22: "InitProducerId",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
}
PATIENCE_SECONDS = 30.0
FETCH = 1
"""The API key of requests for records."""


class Fault(Enum):
    """What happens to a request."""

    LOST = "lost"
    """It does not arrive, and its connection breaks."""
    ANSWER_LOST = "answer lost"
    """It arrives, and its connection breaks instead of the answer."""
    LATE = "late"
    """Its connection breaks, and it arrives directly after the next one of its kind, which the client has sent instead."""
    IN_NEXT_RUN = "in next run"
    """Its connection breaks, and it arrives when the test says so: see `Rule.release`."""
    REPEATED = "repeated"
    """It arrives twice, and the client gets the first answer."""


@dataclass
class Rule:
    """The next request of this kind has this fault."""

    name: str
    fault: Fault
    is_used: bool = False
    late: bytes | None = None
    """The request that has not arrived yet."""
    has_arrived: bool = False
    """Whether the broker has answered the late request."""
    releases: str | None = None
    """It arrives before the next request of this kind."""

    def release(self, before: str) -> None:
        """Let the late request arrive before the next request of a kind."""
        assert self.late is not None
        self.releases = before


@dataclass
class _Pending:
    """Requests of one connection that are not answered yet, by their correlation ids."""

    keys: dict[int, int] = field(default_factory=dict)
    """Their API keys."""
    lost: set[int] = field(default_factory=set)
    """Their answers break the connection."""
    repeated: set[int] = field(default_factory=set)
    """One of their two answers is not passed on."""
    overtaken: dict[int, tuple[bytes, Rule]] = field(default_factory=dict)
    """Late requests that arrive before the answer is passed on."""


class Proxy:
    """Started on entry, before its broker."""

    def __init__(self) -> None:
        [self.port, self.broker_port] = free_ports(2)
        self.requests: Counter[int] = Counter()
        """By API key."""
        self.answered: Counter[int] = Counter()
        """Bytes of the answers, by API key."""
        self._rule: Rule | None = None
        self._lock = threading.Lock()
        self._server = socket.create_server((LOOPBACK, self.port))

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # accept() returns only after shutdown().
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    @contextmanager
    def fault(self, name: str, fault: Fault) -> Iterator[Rule]:
        """Let the next request of a kind have a fault."""
        self._rule = rule = Rule(name, fault)
        try:
            yield rule
        finally:
            self._rule = None

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Pass on what a client sends. A fault that breaks the connection ends this."""
        pending = _Pending()
        with suppress(OSError), client, socket.create_connection((LOOPBACK, self.broker_port)) as broker:
            answers = threading.Thread(target=self._answer, args=(broker, client, pending), daemon=True)
            answers.start()
            while (frame := _frame(client)) is not None:
                key, _, correlation = struct.unpack(">hhi", frame[4:12])
                pending.keys[correlation] = key
                match self._fault_of(key, frame):
                    case Fault.LOST | Fault.LATE | Fault.IN_NEXT_RUN:
                        break
                    case Fault.ANSWER_LOST:
                        pending.lost.add(correlation)
                        broker.sendall(frame)
                    case Fault.REPEATED:
                        pending.repeated.add(correlation)
                        broker.sendall(frame + frame)
                    case None:
                        self._release(key)
                        if (late := self._overtaken_by(key)) is not None:
                            pending.overtaken[correlation] = late
                        broker.sendall(frame)
            _shut(client)
            _shut(broker)

    def _fault_of(self, key: int, frame: bytes) -> Fault | None:
        with self._lock:
            self.requests[key] += 1
            rule = self._rule
            if rule is None or rule.is_used or NAMES.get(key) != rule.name:
                return None
            rule.is_used = True
            rule.late = frame if rule.fault in (Fault.LATE, Fault.IN_NEXT_RUN) else None
            return rule.fault

    def _overtaken_by(self, key: int) -> tuple[bytes, Rule] | None:
        """The late request, if this one is of its kind: the client has repeated it."""
        with self._lock:
            rule = self._rule
            if rule is None or rule.late is None or rule.fault is not Fault.LATE or NAMES.get(key) != rule.name:
                return None
            late, rule.late = rule.late, None
            return late, rule

    def _release(self, key: int) -> None:
        """Let the late request arrive, if it waits for a request of this kind."""
        with self._lock:
            rule = self._rule
            if rule is None or rule.late is None or rule.releases is None or NAMES.get(key) != rule.releases:
                return
            late, rule.late = rule.late, None
        self._send_late(late, rule)

    def _answer(self, broker: socket.socket, client: socket.socket, pending: _Pending) -> None:
        seen: set[int] = set()
        with suppress(OSError):
            while (frame := _frame(broker)) is not None:
                [correlation] = struct.unpack(">i", frame[4:8])
                if correlation in pending.lost:
                    break
                if correlation in pending.repeated and correlation in seen:
                    continue
                seen.add(correlation)
                with self._lock:
                    self.answered[pending.keys.pop(correlation, -1)] += len(frame)
                if (late := pending.overtaken.pop(correlation, None)) is not None:
                    self._send_late(*late)
                client.sendall(frame)
        _shut(client)
        _shut(broker)

    def _send_late(self, frame: bytes, rule: Rule) -> None:
        """Returns when the broker has answered."""
        with socket.create_connection((LOOPBACK, self.broker_port), PATIENCE_SECONDS) as broker:
            broker.sendall(frame)
            rule.has_arrived = _frame(broker) is not None


def _frame(connection: socket.socket) -> bytes | None:
    """The next request or answer with its length; None at the end of the connection."""
    if (length := _read(connection, 4)) is None or (body := _read(connection, struct.unpack(">i", length)[0])) is None:
        return None
    return length + body


def _read(connection: socket.socket, number: int) -> bytes | None:
    found = bytearray()
    while len(found) < number:
        if not (part := connection.recv(number - len(found))):
            return None
        found += part
    return bytes(found)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxied_cluster(
    make: Callable[..., Any] = Cluster, properties: Mapping[str, str] | None = None
) -> Iterator[tuple[Proxy, Any]]:
    """A broker behind a proxy. The cluster's own address is the broker's: what it advertises is the proxy's.

    Args:
        make: makes the cluster with given properties.
    """
    with Proxy() as proxy:
        cluster = make(properties={**(properties or {}), "advertised.listeners": f"PLAINTEXT://{proxy.address}"})
        proxy.broker_port = cluster.brokers[0].node.port
        with cluster:
            yield proxy, cluster
