"""Seeded schedules of faults: readers see each run entirely or not at all, and each run reports what became of it.

test_unverified_schedules.py has those of old brokers, so that both run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import SystemRandom

import pytest

from tests.simulator.runs import World
from tests.simulator.schedules import play, report

SECONDS, NIGHTLY_SECONDS = 90, 3600


def test_every_promise_is_kept(finding: Callable[[str], None]) -> None:
    assert report(finding, SECONDS, first=0) == []


@pytest.mark.nightly
def test_every_promise_is_kept_in_other_schedules(finding: Callable[[str], None]) -> None:
    assert report(finding, NIGHTLY_SECONDS, first=SystemRandom().randrange(1_000_000, 1_000_000_000)) == []


def test_schedules_contain_epochs_that_were_not_written_and_ids_that_expire() -> None:
    """KAFKA-9666: the coordinator's log has too few replicas while it fences."""
    worlds = [World(seed) for seed in range(80)]
    for world in worlds:
        world.play()
    assert sum(world.brokers.failed_fences for world in worlds) > 5
    assert sum(world.has_expired for world in worlds) > 5


def test_schedule_is_the_same_each_time() -> None:
    assert play(range(20)) == play(range(20))
