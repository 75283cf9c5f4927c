"""Seeded schedules of faults: readers see each run entirely or not at all, and each run reports what became of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from random import SystemRandom

import pytest

from tests.simulator.promises import violations
from tests.simulator.runs import World

SECONDS, UNVERIFIED_SECONDS, NIGHTLY_SECONDS = 40, 20, 3600
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


def report(show: Print, seconds: float, first: int, **world: bool) -> list[str]:
    schedules, requests, outcomes, broken = play(count(first), seconds, **world)
    common = ", ".join(f"{number} {outcome!r}" for outcome, number in outcomes.most_common(5))
    show(f"{schedules} simulated schedules from seed {first}, {requests} requests; {outcomes.total()} runs: {common}, …")
    return broken


def test_every_promise_is_kept(show: Print) -> None:
    assert report(show, SECONDS, first=0) == []


@pytest.mark.nightly
def test_every_promise_is_kept_in_other_schedules(show: Print) -> None:
    assert report(show, NIGHTLY_SECONDS, first=SystemRandom().randrange(1_000_000, 1_000_000_000)) == []


def test_every_promise_is_kept_by_brokers_that_do_not_verify_batches_if_no_task_outlives_its_run(show: Print) -> None:
    assert report(show, UNVERIFIED_SECONDS, first=0, verifies=False, tasks_outlive=False) == []


def test_simulator_finds_late_batches_that_become_visible_on_brokers_that_do_not_verify() -> None:
    """A limit of brokers before Kafka 3.6, which docs/delivery.md names."""
    assert any(play([seed], verifies=False)[-1] for seed in range(1000))


def test_schedules_that_once_broke_a_promise_keep_it_now() -> None:
    """30000264: a repeated write that found no broker reported that nothing was written, after its first write was aborted."""
    assert play([30_000_264], verifies=False, tasks_outlive=False)[-1] == []


def test_schedule_is_the_same_each_time() -> None:
    assert play(range(20)) == play(range(20))
