"""What each thread of a command is doing now, shown while it runs: one line per thread on a terminal, otherwise one log line per
30 seconds.

The code that does the work reports with `activity` and `step`, which cost microseconds and never raise. Leaves to `spark` the
count of rows and to `display` the terminal.
"""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from dbt.adapters.upsert_kafka.progress.display import Display

Step = Literal["compute", "compare", "write"]


class RowCounter(Protocol):
    """Counts the rows of one thread's queries."""

    def restart(self) -> None:
        """Count from now on."""

    def read(self) -> int | None:
        """The rows that were read since `restart`; None if unknown."""

    def written(self) -> int | None:
        """The rows that arrived in the last stage of the newest query since `restart`; None if unknown."""


@dataclass(eq=False)
class Activity:
    """What a thread is doing. Only its own thread changes it."""

    label: str
    counter: RowCounter | None = None
    step: Step | None = None
    known: int | None = None
    """How many rows the step has."""
    began: float = field(default_factory=time.monotonic)
    step_began: float = field(default_factory=time.monotonic)
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    """Of dbt's events: the node."""

    def rows(self) -> int | None:
        if self.counter is None:
            return None
        return self.counter.written() if self.step == "write" else self.counter.read()


class _Thread(threading.local):
    """The activities of this thread; the last one is shown."""

    def __init__(self) -> None:
        self.activities: list[Activity] = []


_thread = _Thread()
_display = Display()


def configure(*, lines: bool, colors: bool) -> None:
    """Set how this process shows progress; without a call there is none.

    Args:
        lines: whether the user wants lines on the terminal, if stderr is one.
    """
    _display.configure(lines, colors)


@contextmanager
def activity(label: str, counter: RowCounter | None = None) -> Iterator[None]:
    """Show `label` for this thread until the block ends. A nested block with the label of an outer one is a part of it."""
    outer = _thread.activities
    if not _display.is_on or any(label == each.label for each in outer):
        yield
        return
    started = Activity(label, counter, "compute" if counter else None)
    if counter is not None:
        counter.restart()
    _thread.activities = [*outer, started]
    _display.show(started, hides=outer[-1] if outer else None)
    try:
        yield
    finally:
        _thread.activities = outer
        _display.hide(started, shows=outer[-1] if outer else None)


def step(name: Step, rows: int | None = None) -> None:
    """The activity of this thread goes on with another step, which has this many rows if they are known."""
    if not _thread.activities:
        return
    current = _thread.activities[-1]
    current.step, current.known, current.step_began = name, rows, time.monotonic()
    if current.counter is not None:
        current.counter.restart()


# A forked process has no thread that draws, and nothing to show yet.
os.register_at_fork(after_in_child=_display.reset)
