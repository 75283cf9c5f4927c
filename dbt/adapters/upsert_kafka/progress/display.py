"""Shows activities: a region of lines below dbt's output on a terminal, or a log line per 30 seconds.

One daemon thread draws and counts. The region begins at the cursor, so erasing it is one escape sequence, and what others print
replaces it instead of being mixed with it. An error in here ends the display, not the command.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.upsert_kafka.dbt_internals import stdout_handlers
from dbt.adapters.upsert_kafka.progress.lines import Line, log_line, styled

if TYPE_CHECKING:
    from dbt.adapters.upsert_kafka.progress import Activity

logger = AdapterLogger("upsert_kafka")

DRAW_SECONDS = 0.25
COUNT_SECONDS = 1.0
LOG_SECONDS = 30.0
ERASE_BELOW = "\x1b[J"


class Display:
    """The activities of a process, and where they are shown."""

    def __init__(self) -> None:
        self.is_on = False
        self.reset()
        atexit.register(self.end)

    def reset(self) -> None:
        """Forget the activities and the thread, for a new process."""
        self._activities: dict[Activity, Line] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._terminal: Terminal | None = None

    def configure(self, lines: bool, colors: bool) -> None:
        self.is_on = True
        with self._changed:
            self._terminal = Terminal(colors) if lines and Terminal.is_possible() else None

    def end(self) -> None:
        """Remove the lines: the process ends, maybe before a thread that still starts Spark."""
        with self._changed:
            self.is_on = False
            self._activities.clear()
            if self._terminal is not None:
                with suppress(OSError, ValueError):  # the terminal is gone
                    self._terminal.draw([])

    def show(self, activity: Activity, hides: Activity | None) -> None:
        with self._changed:
            if hides is not None:
                self._activities.pop(hides, None)
            self._activities[activity] = Line(activity)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
                self._thread.start()
            self._changed.notify()

    def hide(self, activity: Activity, shows: Activity | None) -> None:
        with self._changed:
            self._activities.pop(activity, None)
            if shows is not None:
                self._activities[shows] = Line(shows)
            if self._terminal is not None and not self._activities:
                self._terminal.draw([])

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    while not self._activities:
                        self._changed.wait()
                    terminal, lines = self._terminal, _distinct(self._activities.values())
                if terminal is None:
                    self._log(lines)
                    time.sleep(COUNT_SECONDS)
                else:
                    self._draw(terminal, lines)
                    time.sleep(DRAW_SECONDS)
        except Exception as error:  # whatever it is, the command must go on
            self.is_on = False
            logger.debug(f"Progress is not shown any more: {error!r}")

    def _draw(self, terminal: Terminal, lines: list[Line]) -> None:
        for line in lines:
            if line.age() >= COUNT_SECONDS:
                line.count(COUNT_SECONDS)
        with self._changed:
            # Activities that ended while rows were counted.
            terminal.draw([line for line in lines if line.activity in self._activities])

    def _log(self, lines: list[Line]) -> None:
        for line in lines:
            if line.is_due(LOG_SECONDS):
                line.count(0)
                line.activity.context.copy().run(logger.info, log_line(line))


def _distinct(lines: Iterable[Line]) -> list[Line]:
    """The lines without repetitions: several threads wait for the same start of Spark."""
    found: dict[object, Line] = {}
    for line in lines:
        found.setdefault(line.activity if line.activity.counter else line.activity.label, line)
    return list(found.values())


class Terminal:
    """A region of lines on stderr, which starts at the cursor. Each line fits into the width, so that it is one line."""

    def __init__(self, colors: bool) -> None:
        # A duplicate, because fd 2 is a pipe while the JVM starts.
        self._stream = os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="replace")
        self._colors = colors and "NO_COLOR" not in os.environ
        self._lock = threading.RLock()
        self._drawn = ""

    @staticmethod
    def is_possible() -> bool:
        return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")

    def draw(self, lines: list[Line]) -> None:
        """Replace the region."""
        text = self._text(lines)
        with self._lock:
            self._share_with_dbt()
            if text != self._drawn:
                self._write(ERASE_BELOW + text)
                self._drawn = text

    def write_above(self, stream: TextIO, text: str) -> Any:
        """Write a line of dbt's, which moves the region down."""
        with self._lock:
            if not self._drawn:
                return stream.write(text)
            self._write(ERASE_BELOW)
            written = stream.write(text)
            stream.flush()
            self._write(self._drawn)
            return written

    def _text(self, lines: list[Line]) -> str:
        if not lines:
            return ""
        size = os.get_terminal_size(self._stream.fileno())
        # Terminals of containers may have no size.
        shown = styled(lines[: (size.lines or 24) - 1], (size.columns or 80) - 1, self._colors)
        up = f"\x1b[{len(shown) - 1}A" if len(shown) > 1 else ""
        return "\n".join(shown) + "\r" + up

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _share_with_dbt(self) -> None:
        """dbt's log lines are written above the region. dbt makes a new handler for each command."""
        for handler in stdout_handlers():
            stream = handler.stream
            if not isinstance(stream, AboveRegion) and stream.isatty():
                handler.setStream(AboveRegion(stream, self))


class AboveRegion:
    """The stream of dbt's log lines while there is a region."""

    def __init__(self, stream: TextIO, terminal: Terminal) -> None:
        self._stream, self._terminal = stream, terminal

    def write(self, text: str) -> Any:
        return self._terminal.write_above(self._stream, text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
