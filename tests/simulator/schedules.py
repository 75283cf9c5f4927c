"""Plays seeded schedules of the simulator, and reports how many and what became of their runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count

from tests.simulator.promises import violations
from tests.simulator.runs import World


def play(seeds: Iterable[int], seconds: float = float("inf"), **world: bool) -> tuple[int, int, Counter[str], list[str]]:
    """Number of schedules and requests, outcomes of the runs, and broken promises.

    Args:
        world: arguments of `World`.
    """
    until = time.monotonic() + seconds
    schedules = requests = 0
    outcomes: Counter[str] = Counter()
    broken: list[str] = []
    for seed in seeds:
        if time.monotonic() > until:
            break
        played = World(seed, **world)
        played.play()
        schedules += 1
        requests += played.network.requests
        outcomes.update(run.outcome.removeprefix("Topic 'orders': ")[:60] for run in played.runs)
        broken += [f"seed {seed}: {violation}" for violation in violations(played)]
    return schedules, requests, outcomes, broken


def report(finding: Callable[[str], None], seconds: float, first: int, **world: bool) -> list[str]:
    """Play schedules for a while. Returns the broken promises."""
    schedules, requests, outcomes, broken = play(count(first), seconds, **world)
    common = ", ".join(f"{number} {outcome!r}" for outcome, number in outcomes.most_common(5))
    finding(f"{schedules} simulated schedules from seed {first}, {requests} requests; {outcomes.total()} runs: {common}, …")
    return broken
