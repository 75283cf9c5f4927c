"""Each promise of the simulator can fail: a wrong sequence of requests, or a defect of the sink, is found and named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from kafka import errors

from dbt.adapters.upsert_kafka.sinks import steps
from dbt.adapters.upsert_kafka.sinks.protocol import Client
from dbt.adapters.upsert_kafka.sinks.record_batch import Producer
from dbt.adapters.upsert_kafka.sinks.steps import Steps
from dbt.adapters.upsert_kafka.sinks.writer import PartitionState, Writer
from tests.simulator.brokers import OK, Partition
from tests.simulator.promises import violations
from tests.simulator.runs import FIRST, NAME, PARTITIONS, STATE, TOPIC, Run, World

RUN = "run 0"
WANTED = {0: "a", 1: "b", 2: "c"}
SCHEDULES = 1500


class Scene:
    """A run whose requests the test sends."""

    def __init__(self) -> None:
        self.world = World(0)
        self.run = Run(RUN, dict(WANTED), outcome="published")
        self.world.runs.append(self.run)
        self.brokers = self.world.brokers
        self.brokers.append_fails = lambda: False

    def write(self, values: dict[int, Sequence[str]], attempt: int = 1, state: bool = True, commits: bool = True) -> None:
        """One transaction: records of each key in their order, and the state record."""
        code, producer_id, epoch = self.brokers.init_producer_id(NAME, 60)
        assert code == OK
        sequences: dict[Partition, int] = {}
        written = [(Partition(TOPIC, key % PARTITIONS), (RUN, attempt, key, value)) for key in values for value in values[key]]
        if state:
            written.append((STATE, (RUN, attempt, 0, "")))
        for partition, record in written:
            assert self.brokers.add_partitions(NAME, producer_id, epoch, {partition}) == OK
            sequence = sequences.get(partition, 0)
            assert self.brokers.produce(partition, producer_id, epoch, sequence, (record,))[0] == OK
            sequences[partition] = sequence + 1
        assert self.brokers.end(NAME, producer_id, epoch, commits) == OK
        self.rest()

    def rest(self) -> None:
        self.world.scheduler.run(until=self.world.scheduler.time + 600)


def right(values: dict[int, str] = WANTED) -> dict[int, Sequence[str]]:
    return {key: (FIRST, value) for key, value in values.items()}


def test_right_sequence_breaks_no_promise() -> None:
    scene = Scene()
    scene.write(right(), state=False, commits=False)
    scene.write(right(), attempt=2)
    assert violations(scene.world) == []


def torn(scene: Scene) -> None:
    scene.write(right({0: "a", 1: "b"}))


def twice(scene: Scene) -> None:
    scene.write({**right(), 1: (FIRST, "b", "b")})


def wrong_order(scene: Scene) -> None:
    scene.write({**right(), 2: ("c", FIRST)})


def aborted_attempt_is_visible(scene: Scene) -> None:
    scene.write(right(), state=False)
    scene.write(right(), attempt=2)


def data_without_state(scene: Scene) -> None:
    scene.write(right(), state=False)


def state_without_data(scene: Scene) -> None:
    scene.write({})


def two_times_visible(scene: Scene) -> None:
    scene.write(right())
    scene.write(right(), attempt=2)


def success_is_not_visible(scene: Scene) -> None:
    scene.write(right(), commits=False)


def failure_is_visible(scene: Scene) -> None:
    scene.write(right())
    scene.run.outcome = steps.NOTHING_VISIBLE


def nothing_written_is_wrong(scene: Scene) -> None:
    scene.write(right(), commits=False)
    scene.run.outcome = steps.NOTHING_WRITTEN


def hanging_batch(scene: Scene) -> None:
    """A batch that no partition verified, after the end of its transaction."""
    scene.write(right())
    scene.brokers.log(Partition(TOPIC, 0)).append(1, 5, 0, ((RUN, 1, 0, "late"),))


def coordinator_never_ends(scene: Scene) -> None:
    scene.write(right())
    _, producer_id, epoch = scene.brokers.init_producer_id(NAME, float("inf"))
    scene.brokers.add_partitions(NAME, producer_id, epoch, {STATE})


def unfinished(scene: Scene) -> None:
    scene.write(right())
    scene.run.outcome = "unfinished"


def last_run_fails(scene: Scene) -> None:
    scene.run.outcome = "no broker answers"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torn, "after ('run 0', 1) the topic is"),
        (twice, "not two records in order"),
        (wrong_order, "not two records in order"),
        (aborted_attempt_is_visible, "has visible records of ('run 0', 1), to which no state record belongs"),
        (data_without_state, "to which no state record belongs"),
        (state_without_data, "after ('run 0', 1) the topic is {}"),
        (two_times_visible, "is visible 2 times"),
        (success_is_not_visible, "reported success and is not visible"),
        (failure_is_visible, "is visible, but reported"),
        (nothing_written_is_wrong, "has written, but reported"),
        (hanging_batch, "a transaction is open forever on orders 0"),
        (coordinator_never_ends, "the coordinator has an open transaction"),
        (unfinished, "has not ended"),
        (last_run_fails, "the last run, without faults, ended with: no broker answers"),
    ],
)
def test_wrong_sequence_is_found(wrong: Callable[[Scene], None], message: str) -> None:
    scene = Scene()
    wrong(scene)
    assert any(message in violation for violation in violations(scene.world)), violations(scene.world)


# Defects of the sink. Each breaks a promise in some schedule.


def no_check(patch: pytest.MonkeyPatch) -> None:
    """Without the check of the topic after the transactional id was taken."""
    patch.setattr(Steps, "_check", lambda _: None)


def same_epoch_again(patch: pytest.MonkeyPatch) -> None:
    """Without a new epoch after an abort: late tasks and late requests reach the next transaction."""

    def abort(client: Client, producer: Producer, *_: object) -> Producer:
        client._end(producer, committed=False)
        return producer

    patch.setattr(Client, "abort", abort)


def commit_instead_of_abort(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Client, "abort", lambda client, producer, *_: client._end(producer, committed=True))


def lost_batches_are_not_repeated(patch: pytest.MonkeyPatch) -> None:
    def complete(writer: Writer, state: PartitionState) -> None:
        batch = state.in_flight.popleft()
        writer._receive(batch)

    patch.setattr(Writer, "_complete_oldest", complete)


def success_without_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Steps, "_commit", lambda *_: None)


def unconfirmed_commit_is_called_a_failure(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "COMMIT_NOT_CONFIRMED", steps.NOTHING_VISIBLE)


def fenced_run_writes_again(patch: pytest.MonkeyPatch) -> None:
    """A fenced run that takes the id back and writes what it compared before."""

    def abort(client: Client, producer: Producer, timeout_ms: int, *_: object) -> Producer:
        with suppress(errors.KafkaError):
            client._end(producer, committed=False)
        return client.open(producer.transactional_id, timeout_ms)

    patch.setattr(Client, "abort", abort)


def state_after_the_commit(patch: pytest.MonkeyPatch) -> None:
    """Data that is committed before its state record is written."""
    deliver = Steps._deliver_once

    def split(self: Any, producer: Producer | None) -> Any:
        write_state = self.write_state

        def early(client: Client, opened: Producer, delivery: Any) -> None:
            client.commit(opened)
            write_state(client, opened, delivery)

        self.write_state = early
        try:
            return deliver(self, producer)
        finally:
            self.write_state = write_state

    patch.setattr(Steps, "_deliver_once", split)


@pytest.mark.parametrize(
    ("defect", "message", "first"),
    [
        (no_check, "the topic is", 0),
        (same_epoch_again, "not two records in order", 0),
        (commit_instead_of_abort, "to which no state record belongs", 0),
        (lost_batches_are_not_repeated, "not two records in order", 0),
        (success_without_commit, "reported success and is not visible", 0),
        # Rare: a commit whose answers are all lost. No schedule before this seed has one.
        (unconfirmed_commit_is_called_a_failure, "is visible, but reported", 929),
        (fenced_run_writes_again, "the topic is", 0),
        (state_after_the_commit, "to which no state record belongs", 0),
    ],
)
def test_defect_of_the_sink_is_found(
    monkeypatch: pytest.MonkeyPatch, defect: Callable[[pytest.MonkeyPatch], None], message: str, first: int
) -> None:
    defect(monkeypatch)
    assert any(message in violation for seed in range(first, first + SCHEDULES) for violation in found(seed))


def found(seed: int) -> list[str]:
    world = World(seed)
    world.play()
    return violations(world)
