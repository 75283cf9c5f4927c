"""Seeded schedules of faults: readers see each run entirely or not at all, and each run reports what became of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from random import SystemRandom

import pytest

from dbt.adapters.upsert_kafka.sinks.protocol import Client
from dbt.adapters.upsert_kafka.sinks.record_batch import Producer
from dbt.adapters.upsert_kafka.sinks.steps import Steps
from tests.simulator.runs import World, violations

SECONDS, NIGHTLY_SECONDS = 45, 3600
Print = Callable[[str], None]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Print:
    """Prints also if the test succeeds."""

    def show(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}")

    return show


def play(
    seeds: Iterable[int], seconds: float = float("inf"), verifies: bool = True, tasks_outlive: bool = True
) -> tuple[int, int, Counter[str], list[str]]:
    """Number of schedules and requests, outcomes of the runs, and broken promises."""
    until = time.monotonic() + seconds
    schedules = requests = 0
    outcomes: Counter[str] = Counter()
    broken: list[str] = []
    for seed in seeds:
        if time.monotonic() > until:
            break
        world = World(seed, verifies, tasks_outlive)
        world.play()
        schedules += 1
        requests += world.network.requests
        outcomes.update(run.outcome.removeprefix("Topic 'orders': ")[:60] for run in world.runs)
        broken += [f"seed {seed}: {violation}" for violation in violations(world)]
    return schedules, requests, outcomes, broken


def report(show: Print, seconds: float, first: int) -> list[str]:
    schedules, requests, outcomes, broken = play(count(first), seconds)
    common = ", ".join(f"{number} {outcome!r}" for outcome, number in outcomes.most_common(5))
    show(f"{schedules} simulated schedules from seed {first}, {requests} requests; {outcomes.total()} runs: {common}, …")
    return broken


def test_every_promise_is_kept(show: Print) -> None:
    assert report(show, SECONDS, first=0) == []


@pytest.mark.nightly
def test_every_promise_is_kept_in_other_schedules(show: Print) -> None:
    assert report(show, NIGHTLY_SECONDS, first=SystemRandom().randrange(1_000_000, 1_000_000_000)) == []


def test_every_promise_is_kept_by_brokers_that_do_not_verify_batches_if_no_task_outlives_its_run() -> None:
    assert play(range(300), verifies=False, tasks_outlive=False)[-1] == []


def test_simulator_finds_late_batches_that_become_visible_on_brokers_that_do_not_verify() -> None:
    """A limit of brokers before Kafka 3.6, which docs/delivery.md names."""
    assert any(play([seed], verifies=False)[-1] for seed in range(1000))


def test_schedule_is_the_same_each_time() -> None:
    assert play(range(20)) == play(range(20))


def no_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of the topic after the transactional id was taken."""
    monkeypatch.setattr(Steps, "_check", lambda _: None)


def same_epoch_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a new epoch after an abort: late tasks and late requests reach the next transaction."""

    def abort(client: Client, producer: Producer, *_: object) -> Producer:
        client._end(producer, committed=False)
        return producer

    monkeypatch.setattr(Client, "abort", abort)


def open_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated write that takes the transactional id without its own epoch, and without a new comparison."""

    def abort(client: Client, producer: Producer, timeout_ms: int, _: object) -> Producer:
        return client.open(producer.transactional_id, timeout_ms)

    monkeypatch.setattr(Client, "abort", abort)


@pytest.mark.parametrize("defect", [no_check, same_epoch_again, open_again])
def test_simulator_finds_a_known_defect(monkeypatch: pytest.MonkeyPatch, defect: Callable[[pytest.MonkeyPatch], None]) -> None:
    defect(monkeypatch)
    assert any(play([seed])[-1] for seed in range(1000))
