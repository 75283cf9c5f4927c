"""`upsert-kafka stream` waits for the lease of a process that was killed, and not for one that runs."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.errors import GuardError, WarningError
from dbt.adapters.upsert_kafka.state.record import Lease, Stream
from dbt.adapters.upsert_kafka.streaming import handover

REQUEST: Any = SimpleNamespace(model="orders", topic="shop.orders", kafka=SimpleNamespace(admin=lambda: nullcontext(None)))


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    for module in (handover, handover.lease):
        monkeypatch.setattr(module, "time", found)
    monkeypatch.setattr(handover.topics, "describe", lambda *_: "a topic")
    return found


def _held(until: float) -> Any:
    lease = Lease("another", "db7", 4711, "another machine", "2026-01-01 00:00:00Z", until)
    return SimpleNamespace(stream=Stream({}, "query", 1, {}, {}, False, lease=lease))


def test_lease_of_a_killed_process_is_waited_for(monkeypatch: pytest.MonkeyPatch, clock: Time, warnings: list[str]) -> None:
    monkeypatch.setattr(handover.memory, "look", lambda *_: _held(1040.0))
    handover.wait_for_lease(REQUEST, lambda: False)
    assert clock.now == 1040.0
    assert len(warnings) == 1 and "model orders: waits for the lease of process 4711 on db7" in warnings[0]


def test_process_that_renews_its_lease_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, clock: Time) -> None:
    monkeypatch.setattr(handover.memory, "look", lambda *_: _held(1060.0 if clock.now < 1015 else 1075.0))
    with pytest.raises(GuardError, match="is published by a running stream"):
        handover.wait_for_lease(REQUEST, lambda: False)
    assert clock.now == 1015.0


def test_wait_ends_when_the_command_is_cancelled(monkeypatch: pytest.MonkeyPatch, clock: Time) -> None:
    monkeypatch.setattr(handover.memory, "look", lambda *_: _held(1040.0))
    handover.wait_for_lease(REQUEST, lambda: clock.now >= 1010)
    assert clock.now == 1010.0


def test_wait_for_a_lease_is_a_warning_before_anything_is_written(monkeypatch: pytest.MonkeyPatch, warn_error: list[str]) -> None:
    monkeypatch.setattr(handover.topics, "describe", lambda *_: "a topic")
    monkeypatch.setattr(handover.memory, "look", lambda *_: SimpleNamespace(stream=None))
    monkeypatch.setattr(handover.lease, "holder", lambda _: SimpleNamespace(until=0.0))
    with pytest.raises(WarningError, match="model orders: waits for the lease of "):
        handover.wait_for_lease(REQUEST, lambda: False)
