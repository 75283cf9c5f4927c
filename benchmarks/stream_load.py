"""The load of the stream benchmark, the same for all contenders: events at an even rate, probes, and the reader of the results.

A probe is an event of a group of its own. Its latency is the time from the broker's acknowledgement of the event until a
read_committed consumer has the group's result.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

PROBE = "probe "
PROBES_PER_SECOND = 10
POLL_SECONDS = 0.005


class Load:
    """Writes events of `groups` regions to a topic."""

    def __init__(self, servers: str, topic: str, groups: int) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 5, "acks": "all", "queue.buffering.max.messages": 1000000}
        )
        self._topic, self._groups = topic, groups
        self.sent = 0
        self.acknowledged: dict[str, float] = {}
        """When the broker acknowledged a probe."""

    def at_rate(self, per_second: int, seconds: float) -> None:
        """Write events and probes at an even rate."""
        begin, step = time.monotonic(), 1 / PROBES_PER_SECOND
        for number in range(round(seconds * PROBES_PER_SECOND)):
            time.sleep(max(0.0, begin + number * step - time.monotonic()))
            self._events(per_second // PROBES_PER_SECOND)
            self._send(f"{PROBE}{self.sent}", is_probe=True)
            self._producer.poll(0)
        self._producer.flush()

    def burst(self, events: int) -> None:
        """Write events as fast as possible."""
        for _ in range(0, events, 1000):
            self._events(1000)
            self._producer.poll(0)
        self._producer.flush()

    def _events(self, number: int) -> None:
        for _ in range(number):
            self._send(f"region {self.sent % self._groups}")

    def _send(self, region: str, is_probe: bool = False) -> None:
        value = f'{{"region":"{region}","user_id":{self.sent}}}'

        def acknowledge(error: KafkaError | None, _: Any) -> None:
            if error is None:
                self.acknowledged[region] = time.monotonic()

        while True:
            try:
                self._producer.produce(self._topic, value, on_delivery=acknowledge if is_probe else None)
                break
            except BufferError:
                self._producer.poll(0.1)
        self.sent += 1


class Results(threading.Thread):
    """Reads the results until it is closed: the sum of all counts, and when each probe arrived.

    Args:
        is_running: whether the contender is.
    """

    def __init__(self, servers: str, topic: str, partitions: int, is_running: Callable[[], bool]) -> None:
        super().__init__(daemon=True)
        settings = {"bootstrap.servers": servers, "group.id": "benchmark", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "fetch.wait.max.ms": 5})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._is_running = is_running
        self._over = threading.Event()
        self._counts: dict[str, int] = defaultdict(int)
        self.total = 0
        """Events that the results count."""
        self.arrived: dict[str, float] = {}

    def run(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(10_000, POLL_SECONDS):
                value = message.value()
                if message.error() is not None or value is None:
                    continue
                row = json.loads(value)
                region, count = row["region"], row["pv"]
                self.total += count - self._counts[region]
                self._counts[region] = count
                if region.startswith(PROBE):
                    self.arrived.setdefault(region, time.monotonic())
        self._consumer.close()

    def wait_for(self, total: int, seconds: float) -> float:
        """Wait until the results count all events.

        Returns:
            When they did.
        """
        until = time.monotonic() + seconds
        while self.total < total:
            if time.monotonic() > until or not self._is_running():
                raise TimeoutError(f"the results count {self.total} of {total} events, and the contender ended or took too long")
            time.sleep(POLL_SECONDS)
        return time.monotonic()

    def close(self) -> None:
        self._over.set()
        self.join()


def percentile(values: list[float], percent: int) -> float:
    """
    >>> percentile([float(n) for n in range(1, 101)], 99)
    99.99
    """
    return statistics.quantiles(values, n=100)[percent - 1]
