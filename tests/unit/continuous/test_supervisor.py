"""What the supervisor does with a stream that has failed for good."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dbt.adapters.upsert_kafka.continuous.running import RunningStream, Status
from dbt.adapters.upsert_kafka.continuous.supervisor import Supervisor
from dbt.adapters.upsert_kafka.errors import GuardError


class Stream(RunningStream):
    """Runs, or is refused at its second check."""

    def __init__(self, name: str, is_refused: bool) -> None:
        request: Any = SimpleNamespace(model=name, topic=name, options=SimpleNamespace(trigger_interval=None))
        model: Any = SimpleNamespace(request=request, sources=())
        super().__init__(model, max_restarts=10)
        self.is_refused, self.checks, self.is_closed = is_refused, 0, False

    def check(self) -> None:
        self.checks += 1
        if self.status is Status.STARTING:
            self.status = Status.RUNNING
        elif self.status is Status.RUNNING and self.is_refused:
            self._failed(GuardError(f"model {self.name}: refused."))

    def has_ended(self) -> bool:
        return True

    def close(self) -> None:
        self.is_closed = True


class Messages:
    is_due = False

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.shown: list[Any] = []

    def message(self, text: str) -> None:
        self.messages.append(text)

    def show(self, lines: Any) -> None:
        self.shown = lines


def test_refused_batch_ends_its_own_stream_only() -> None:
    good, bad, reporter = Stream("good", False), Stream("bad", True), Messages()
    supervisor = Supervisor([bad, good], lambda: bad.is_closed and good.checks > 4, end_seconds=1)
    of_test: Any = reporter
    # The command ends with these, and exit code 1.
    assert supervisor.run(of_test) == ["model bad: refused."]
    assert reporter.messages == ["model bad: refused. This stream has ended, the others go on."]
    assert {line.model: line.status for line in reporter.shown} == {"bad": "failed", "good": "running"}
    assert list(supervisor.problems()) == ["bad"]


def test_command_ends_when_no_stream_is_left() -> None:
    reporter: Any = Messages()
    supervisor = Supervisor([Stream("one", True), Stream("two", True)], lambda: False, end_seconds=1)
    assert supervisor.run(reporter) == ["model one: refused.", "model two: refused."]
