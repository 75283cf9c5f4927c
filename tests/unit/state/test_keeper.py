"""The leases of a process are renewed until each is released, and never afterwards."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.errors import StateError
from dbt.adapters.upsert_kafka.state import lease
from dbt.adapters.upsert_kafka.state.keeper import Held, Keeper
from dbt.adapters.upsert_kafka.state.record import Lease, Stream


class Store:
    """The leases of topics. Each second write of one fails."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease | None] = {}
        self.renewed: Counter[str] = Counter()

    def get(self, _admin: Any, topic: str, waits: bool) -> Any:
        stream = Stream({}, "query", 1, {}, {}, False, lease=self.leases.get(topic))
        return type("Record", (), {"stream": stream})

    def put_lease(self, topic: str, value: Lease | None) -> None:
        self.renewed[topic] += 1
        if value is not None and self.renewed[topic] % 2 == 0:
            raise StateError("the broker does not answer")
        self.leases[topic] = value


class Kafka:
    bootstrap_servers = "localhost:9092"

    @contextmanager
    def admin(self) -> Any:
        yield None


def held(store: Any, topic: str) -> Held:
    kafka: Any = Kafka()
    return Held(kafka, store, topic)


def _wait(store: Store, *topics: str) -> None:
    before, until = Counter(store.renewed), time.monotonic() + 30
    while any(store.renewed[topic] < before[topic] + 3 for topic in topics):
        assert time.monotonic() < until, store.renewed
        time.sleep(0.001)


def test_leases_are_renewed_until_they_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.001)
    store, keeper, kafka = Store(), Keeper(), held(None, "").kafka
    for topic in ("one", "two"):
        keeper.hold(held(store, topic))
    _wait(store, "one", "two")
    keeper.release(kafka, "one")
    released = store.renewed["one"]
    _wait(store, "two")
    assert (store.leases["one"], store.renewed["one"]) == (None, released)
    keeper.release(kafka, "two")
    # Nothing is held, and then again.
    keeper.hold(held(store, "three"))
    _wait(store, "three")
    keeper.release(kafka, "three")
    assert set(store.leases.values()) == {None}


def test_lease_of_another_process_is_not_replaced() -> None:
    store, keeper = Store(), Keeper()
    other = Lease("another", "db7", 4711, "another machine", "2026-01-01 00:00:00Z", time.time() + 30)
    store.leases["one"] = other
    keeper.hold(held(store, "one"))
    assert store.leases["one"] == other
