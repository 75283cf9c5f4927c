"""Seeded schedules of faults with brokers before Kafka 3.6, which do not verify batches."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulator.schedules import play, report

SECONDS = 30


def test_every_promise_is_kept_if_no_task_outlives_its_run(finding: Callable[[str], None]) -> None:
    assert report(finding, SECONDS, first=0, verifies=False, tasks_outlive=False) == []


def test_simulator_finds_late_batches_that_become_visible() -> None:
    """A limit of brokers before Kafka 3.6, which docs/delivery.md names."""
    assert any(play([seed], verifies=False)[-1] for seed in range(1000))


def test_schedules_that_once_broke_a_promise_keep_it_now() -> None:
    """30000264: a repeated write that found no broker reported that nothing was written, after its first write was aborted."""
    assert play([30_000_264], verifies=False, tasks_outlive=False, appends_fail=False)[-1] == []
