"""Progress on a terminal and without one. The terminal is a pseudo-terminal of the kernel."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from dbt.cli.flags import Flags, args_to_context

from dbt.adapters.upsert_kafka import dbt_internals, progress
from dbt.adapters.upsert_kafka.dbt_internals import STDOUT_LOG
from dbt.adapters.upsert_kafka.progress import display
from dbt.adapters.upsert_kafka.progress.display import ERASE_BELOW, Display


class Counter:
    """Has read 500 rows and written 20."""

    restarts = 0

    def restart(self) -> None:
        self.restarts += 1

    def read(self) -> int:
        return 500

    def written(self) -> int:
        return 20


class BrokenCounter(Counter):
    def read(self) -> int:
        raise RuntimeError("no JVM")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Display:
    """A display of its own that draws, counts and logs at once."""
    own = Display()
    monkeypatch.setattr(progress, "_display", own)
    for name in ("DRAW_SECONDS", "COUNT_SECONDS", "LOG_SECONDS"):
        monkeypatch.setattr(display, name, 0.01)
    return own


class Terminal:
    """A pseudo-terminal, and what was written to it."""

    def __init__(self) -> None:
        self._ours, theirs = os.openpty()
        self.stderr = open(theirs, "w")  # noqa: SIM115
        self.text = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError):  # the end of a pseudo-terminal is an error on Linux
            while text := os.read(self._ours, 65536):
                self.text += text.decode()

    def wait_for(self, text: str, times: int = 1) -> None:
        wait_until(lambda: self.text.count(text) >= times, lambda: f"{text!r} in {self.text!r}")


def wait_until(is_true: Callable[[], object], message: Callable[[], str]) -> None:
    end = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < end, message()
        time.sleep(0.01)


@pytest.fixture
def terminal(shown: Display, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """stderr is a terminal without colours."""
    found = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", found.stderr)
    progress.configure(lines=True, colors=True)
    return found


def test_terminal_has_one_line_for_each_step_and_nothing_at_the_end(terminal: Terminal) -> None:
    counter = Counter()
    with progress.activity("orders", counter):
        terminal.wait_for("orders  compute  500 rows read  ")
        progress.step("write", 40)
        terminal.wait_for("orders  write    20 of 40 rows  ")
    wait_until(lambda: terminal.text.endswith(ERASE_BELOW), lambda: terminal.text)
    assert "write    500" not in terminal.text
    assert counter.restarts == 2


def test_log_line_of_dbt_is_written_above_the_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    logged = io.StringIO()
    monkeypatch.setattr(logged, "isatty", lambda: True, raising=False)
    log = logging.getLogger(STDOUT_LOG)
    monkeypatch.setattr(log, "handlers", [logging.StreamHandler(logged)])
    with progress.activity("orders"):
        terminal.wait_for("orders")
        before = terminal.text.count("orders")
        log.error("1 of 2 OK")
        # Erased before the log line, and drawn again.
        terminal.wait_for("orders", times=before + 1)
    assert logged.getvalue() == "1 of 2 OK\n"


def test_nested_activity_replaces_the_outer_one(terminal: Terminal) -> None:
    with progress.activity("catalog"):
        with progress.activity("Starting Spark"):
            terminal.wait_for("Starting Spark")
        before = terminal.text.count("catalog")
        terminal.wait_for("catalog", times=before + 1)


def test_without_a_terminal_there_are_log_lines_only(
    shown: Display, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(display.logger, "info", lines.append)
    progress.configure(lines=True, colors=True)
    with progress.activity("orders", Counter()):
        wait_until(lambda: lines, lambda: "no log line")
    assert lines[0].startswith("orders: compute, 500 rows read, ")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("flags", [["--quiet"], ["--log-format", "json"]])
def test_quiet_and_json_logs_have_log_lines_only(
    terminal: Terminal, flags: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(display.logger, "info", lines.append)
    config = SimpleNamespace(args=Flags(args_to_context([*flags, "run", "--profiles-dir", str(tmp_path)])))
    progress.configure(lines=dbt_internals.wants_progress(config), colors=True)
    with progress.activity("orders", Counter()):
        wait_until(lambda: lines, lambda: "no log line")
    assert lines[0].startswith("orders: compute, 500 rows read, ")
    terminal.stderr.write("end")
    terminal.stderr.flush()
    terminal.wait_for("end")
    assert terminal.text == "end", "nothing else was written to the terminal"


def test_error_ends_the_display_and_not_the_command(shown: Display, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    monkeypatch.setattr(display.logger, "debug", messages.append)
    progress.configure(lines=True, colors=True)
    with progress.activity("orders", BrokenCounter()):
        wait_until(lambda: messages, lambda: "no error")
    with progress.activity("orders", BrokenCounter()):
        progress.step("write", 3)
    assert not shown.is_on
    assert messages == ["Progress is not shown any more: RuntimeError('no JVM')"]
