"""What `upsert-kafka stream` prints: a table that stays in place on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from dbt.adapters.upsert_kafka.continuous import report
from dbt.adapters.upsert_kafka.continuous.report import Line, Reporter

LINE = Line("orders", "shop.orders", "running", 3, 1200, 1530.4, 0.46, 1234, 2.4, 40000, 2, 0, 0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_table_has_one_line_for_each_model() -> None:
    console = Console(file=io.StringIO(), width=120)
    waiting = replace(LINE, model="users", status="pausing", lag_records=None, lag_seconds=None, restarts=2)
    console.print(report._table([LINE, waiting]))
    assert isinstance(console.file, io.StringIO)
    lines = [line.split("  ") for line in console.file.getvalue().splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert cells == [
        ["model", "topic", "status", "events/s", "batch", "behind", "written", "deleted"],
        ["orders", "shop.orders", "running", "1,530", "0.5 s", "1,234 (2 s)", "40,000", "2"],
        ["users", "shop.orders", "pausing (2 restarts)", "1,530", "0.5 s", "–", "40,000", "2"],
    ]


def test_table_stays_in_place_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with Reporter(10.0) as reporter:
        assert reporter.is_due and reporter.is_due
        for written in (10, 20):
            reporter.show([replace(LINE, written=written)])
        reporter.message("orders starts again in 1 s.")
    text = terminal.getvalue()
    assert "{" not in text.replace("\x1b", "") and "orders starts again in 1 s." in text
    # The cursor goes up over the lines before.
    assert "\x1b[1A" in text[text.index("10") :]


def test_json_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter(10.0) as reporter:
        before = reporter.is_due
        reporter.show([LINE, replace(LINE, model="users")])
        assert (before, reporter.is_due) == (True, False)
        reporter.message("orders starts again in 1 s.")
    printed = capsys.readouterr()
    assert [json.loads(line)["model"] for line in printed.out.splitlines()] == ["orders", "users"]
    assert printed.err == "orders starts again in 1 s.\n"
