"""Restarts, pauses, the limit, signals and the exit code of `upsert-kafka stream`, with a clock and queries of the test."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from dbt.adapters.upsert_kafka.continuous import command, models, report, running, supervisor
from dbt.adapters.upsert_kafka.continuous.running import RunningStream, Status
from dbt.adapters.upsert_kafka.errors import GuardError, UpsertKafkaError
from dbt.adapters.upsert_kafka.streaming.rows import Counts

DOWN = UpsertKafkaError("model orders: the broker is down.")


class Clock:
    """A clock that only a sleep moves, also for the thread of leases."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Query:
    """A query of Spark.

    Args:
        reports: of its batches.
        fails: whether it has ended with an error.
    """

    def __init__(self, reports: list[dict[str, Any]], fails: bool = False) -> None:
        self.reports = reports
        self.isActive = not fails
        self.status = {"isTriggerActive": False}

    def exception(self) -> Exception:
        return DOWN

    def stop(self) -> None:
        self.isActive = False


class Writer:
    def __init__(self) -> None:
        self.counts, self.error, self.is_ending = Counts(), DOWN, False
        self.stream = SimpleNamespace(offsets={})

    def close(self) -> None:
        pass


class Leases:
    def __init__(self) -> None:
        self.released: list[str] = []

    def release(self, _: object, topic: str) -> None:
        self.released.append(topic)


class Kafka:
    bootstrap_servers = "b:1"

    @contextmanager
    def admin(self) -> Iterator[None]:
        yield None


def _batch(number: int) -> dict[str, Any]:
    return {"timestamp": f"t{number}", "batchId": number, "numInputRows": 5, "durationMs": {"triggerExecution": 100}}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (running, supervisor, report):
        monkeypatch.setattr(module, "time", found)
    return found


@pytest.fixture(autouse=True)
def leases(monkeypatch: pytest.MonkeyPatch) -> Leases:
    found = Leases()
    monkeypatch.setattr(running, "LEASES", found)
    return found


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[Query | Exception]:
    """What the starts of a stream return or raise, in order; the last of them is for all others."""
    found: list[Query | Exception] = []

    def start(*_: object, **__: object) -> Query:
        following = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(following, Exception):
            raise following
        return following

    monkeypatch.setattr(running.pipeline, "analyse", lambda _: (None, None))
    monkeypatch.setattr(running.pipeline, "begin", lambda *_: Writer())
    monkeypatch.setattr(running.pipeline, "start_query", start)
    monkeypatch.setattr(running, "progress_reports", lambda query, after: [r for r in query.reports if r["timestamp"] > after])
    return found


def _model(name: str = "orders") -> Any:
    options = SimpleNamespace(trigger_interval=None)
    request = SimpleNamespace(model=name, topic=f"shop.{name}", kafka=Kafka(), options=options)
    return SimpleNamespace(request=request, sources=(), tables=())


def _pauses(stream: RunningStream, clock: Clock) -> list[float]:
    """Check the stream until it has failed for good."""
    found = []
    while stream.status is not Status.FAILED:
        stream.check()
        if stream.status is Status.PAUSING:
            found.append(stream.starts_at - clock.now)
            clock.now = stream.starts_at - 0.1
            stream.check()
            assert stream.status is Status.PAUSING  # not before the pause is over
            clock.now = stream.starts_at
    return found


def test_pauses_grow_up_to_a_minute_and_end_at_the_limit(clock: Clock, queries: list[Any]) -> None:
    queries[:] = [DOWN]
    stream = RunningStream(_model(), max_restarts=9)
    assert _pauses(stream, clock) == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert (stream.restarts, stream.reason) == (9, "model orders: the broker is down.")


def test_batch_in_between_begins_the_count_again(clock: Clock, queries: list[Any]) -> None:
    works = Query([_batch(0)])
    queries[:] = [DOWN, DOWN, works, DOWN]
    stream = RunningStream(_model(), max_restarts=2)
    for _ in range(3):
        stream.check()
        clock.now = stream.starts_at
    assert stream.status is Status.RUNNING
    stream.check()
    assert (stream.progress.events, stream.reason) == (5, None)
    works.isActive = False
    assert _pauses(stream, clock) == [1, 2]


def test_refused_start_is_not_repeated(clock: Clock, queries: list[Any]) -> None:
    queries[:] = [GuardError("model orders: NULL keys.")]
    stream = RunningStream(_model(), max_restarts=9)
    stream.check()
    assert (stream.status, stream.restarts) == (Status.FAILED, 0)


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: str, prepared: Callable[..., Any] = lambda *_: [_model()]) -> Any:
    monkeypatch.setattr(models, "prepare", prepared)
    return CliRunner().invoke(command.stream, list(arguments))


def test_command_exits_with_1_after_the_limit(monkeypatch: pytest.MonkeyPatch, clock: Clock, queries: list[Any]) -> None:
    queries[:] = [Query([], fails=True)]
    done = _run(monkeypatch, "--max-restarts", "3")
    assert done.exit_code == 1
    *restarts, last = done.stderr.splitlines()
    assert [line.rsplit(" ", 2)[1] for line in restarts] == ["1", "2", "4"]
    assert last == "Error: model orders: the broker is down."
    assert '"status": "failed"' in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("number", command.SIGNALS, ids=lambda number: number.name)
def test_signals_end_the_command_between_two_batches(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, queries: list[Any], leases: Leases, number: signal.Signals
) -> None:
    query, writer = Query([_batch(0)]), Writer()
    queries[:] = [query]
    monkeypatch.setattr(running.pipeline, "begin", lambda *_: writer)
    begin, handlers = clock.now, [signal.getsignal(found) for found in command.SIGNALS]

    def sleep(seconds: float) -> None:
        Clock.sleep(clock, seconds)
        if seconds == supervisor.POLL_SECONDS and clock.now - begin >= 2 and not writer.is_ending:
            query.status["isTriggerActive"] = True
            signal.raise_signal(number)
        elif query.status["isTriggerActive"]:
            assert writer.is_ending and query.isActive  # the running batch is not stopped
            query.reports.append(_batch(1))
            query.status["isTriggerActive"] = False

    monkeypatch.setattr(clock, "sleep", sleep)
    done = _run(monkeypatch)
    assert (done.exit_code, done.stderr) == (0, "")
    assert not query.isActive and leases.released == ["shop.orders"]
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["status"], last["batch"], last["events"]) == ("ended", 1, 10)
    assert [signal.getsignal(found) for found in command.SIGNALS] == handlers
