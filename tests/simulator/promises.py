"""What must be true after every schedule. test_promises.py shows for each promise that breaking it is found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.simulator.brokers import Partition, State
from tests.simulator.runs import FIRST, PARTITIONS, STATE, TOPIC, Run, Table, World

NOTHING_VISIBLE, NOTHING_WRITTEN = "Nothing of this run", "Nothing was written"
UNKNOWN = "unless the answer"
Tag = tuple[str, int]
"""A run and the number of its attempt, which are in each of its records."""


def violations(world: World) -> list[str]:
    """Which promises the schedule has broken."""
    return [*_open_transactions(world), *_contents(world), *(text for run in world.runs for text in _report(world, run))]


def _open_transactions(world: World) -> Iterator[str]:
    """No transaction is open forever."""
    for partition, log in world.brokers.logs.items():
        if log.stable_end != log.end:
            yield f"a transaction is open forever on {partition.topic} {partition.number}"
    for name, found in world.brokers.ids.items():
        if found.state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT):
            yield f"the coordinator has an open transaction of {name}"


def _contents(world: World) -> Iterator[str]:
    """Readers see each run entirely and once, or not at all; nothing of an aborted attempt; and the state records agree."""
    left = {number: _visible(world, Partition(TOPIC, number)) for number in range(PARTITIONS)}
    table: Table = {}
    for state in _states(world):
        # Transactions of one id follow each other, in the order of their state records, in every partition.
        by_key: dict[int, list[Any]] = {}
        for records in left.values():
            while records and tuple(records[0][:2]) == state:
                _, _, key, value = records.pop(0)
                by_key.setdefault(key, []).append(value)
        for key, values in by_key.items():
            if len(values) != 2 or values[0] != FIRST:
                yield f"{state} wrote {values} to key {key}, which are not two records in order"
            table[key] = values[-1]
        run = next(run for run in world.runs if run.name == state[0])
        live = {key: value for key, value in table.items() if value is not None}
        if live != run.wanted:
            yield f"after {state} the topic is {live}, not {run.wanted}"
    for number, records in left.items():
        if records:
            yield f"partition {number} has visible records of {tuple(records[0][:2])}, to which no state record belongs there"


def _report(world: World, run: Run) -> Iterator[str]:
    """A run that reports success is visible, and one that reports failure says correctly whether something is."""
    number = sum(name == run.name for name, _ in _states(world))
    if number > 1:
        yield f"{run.name} is visible {number} times"
    if run.outcome == "published" and not number:
        yield f"{run.name} reported success and is not visible"
    says_nothing = NOTHING_VISIBLE in run.outcome and UNKNOWN not in run.outcome
    if number and (says_nothing or run.outcome in ("unchanged", "moved") or NOTHING_WRITTEN in run.outcome):
        yield f"{run.name} is visible, but reported: {run.outcome}"
    if (NOTHING_WRITTEN in run.outcome or run.outcome in ("unchanged", "moved")) and _has_written(world, run):
        yield f"{run.name} has written, but reported: {run.outcome}"
    if run.outcome == "unfinished":
        error = run.process.error if run.process else None
        yield f"{run.name} has not ended" if error is None else f"{run.name} failed with {error!r}"
    if run is world.runs[-1] and run.outcome not in ("published", "unchanged"):
        yield f"the last run, without faults, ended with: {run.outcome}"


def _visible(world: World, partition: Partition) -> list[Any]:
    return [record for record, _ in world.brokers.log(partition).committed()]


def _states(world: World) -> list[Tag]:
    """The runs of the committed state records."""
    return [tuple(record[:2]) for record in _visible(world, STATE)]


def _has_written(world: World, run: Run) -> bool:
    """Whether a record of the run is in a log, committed or not."""
    return any(record[0] == run.name for log in world.brokers.logs.values() for entry in log.entries for record in entry.records)
