"""Renews the leases of this process, from the preparation of its streams until each of them is released.

A lease is a message of its own in the state topic: one that a suspended process writes late does not replace a stream's progress.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from dbt.adapters.events.logging import AdapterLogger
from kafka.errors import KafkaError

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.state import lease
from dbt.adapters.upsert_kafka.state.store import StateStore

logger = AdapterLogger("upsert_kafka")


@dataclass(frozen=True)
class Held:
    """A topic that this process publishes to."""

    kafka: KafkaSettings
    store: StateStore
    topic: str

    def renew(self) -> None:
        """Write a lease that begins now, unless another process has taken over: then the next batch is refused."""
        with self.kafka.admin() as admin:
            record = self.store.get(admin, self.topic, waits=False)
        if record is None or lease.holder(record.stream) is None:
            self.store.put_lease(self.topic, lease.own())


class Keeper:
    """Holds leases; safe to use from every thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held while a lease is written: none is renewed after it was released."""
        self._held: dict[tuple[str, str], Held] = {}
        self._over: threading.Event | None = None
        """Ends the thread. None if there is none, because nothing is held."""

    def hold(self, held: Held) -> None:
        """Write a lease and renew it until `release`."""
        with self._lock:
            held.renew()
            self._held[_key(held.kafka, held.topic)] = held
            if self._over is None:
                self._over = threading.Event()
                threading.Thread(target=self._keep, args=(self._over,), daemon=True).start()

    def release(self, kafka: KafkaSettings, topic: str) -> None:
        """Let others publish to the topic."""
        with self._lock:
            if (held := self._held.pop(_key(kafka, topic), None)) is None:
                return
            if not self._held and self._over is not None:
                self._over.set()
                self._over = None
            held.store.put_lease(topic, None)

    def _keep(self, over: threading.Event) -> None:
        while not over.wait(lease.RENEW_SECONDS):
            for key in list(self._held):
                with self._lock:
                    if (held := self._held.get(key)) is None:
                        continue
                    try:
                        held.renew()
                    except (KafkaError, UpsertKafkaError, OSError) as error:
                        logger.debug(f"The lease of topic '{held.topic}' was not renewed: {error!r}")


def _key(kafka: KafkaSettings, topic: str) -> tuple[str, str]:
    return kafka.bootstrap_servers, topic


LEASES = Keeper()
