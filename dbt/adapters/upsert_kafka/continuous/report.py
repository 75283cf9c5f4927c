"""What the command shows about its streams: one line per model that stays in place on a terminal, elsewhere a JSON line each."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import click

from dbt.adapters.upsert_kafka.state.record import now_text

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("model", "topic", "status", "events/s", "batch", "behind", "written", "deleted")


@dataclass(frozen=True)
class Line:
    """One stream at one time."""

    model: str
    topic: str
    status: str
    batch: int
    """The last one; -1 before the first."""
    events: int
    """Since the command was started, like the following counts."""
    events_per_second: float
    """Since the last line."""
    batch_seconds: float
    lag_records: int | None
    lag_seconds: float | None
    written: int
    deleted: int
    repeated: int
    restarts: int
    error: str | None = None


class Reporter:
    """Prints lines at an interval.

    Args:
        interval: in seconds, if the output is no terminal.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._last: float = 0.0
        self._live: Any = None

    def __enter__(self) -> Self:
        if sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(auto_refresh=False, transient=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    @property
    def is_due(self) -> bool:
        return self._live is not None or time.monotonic() - self._last >= self._interval

    def show(self, lines: Sequence[Line]) -> None:
        """Print the lines."""
        self._last = time.monotonic()
        if self._live is not None:
            self._live.update(_table(lines), refresh=True)
            return
        for line in lines:
            click.echo(json.dumps({"time": now_text(), **asdict(line)}, ensure_ascii=False))
        sys.stdout.flush()

    def message(self, text: str) -> None:
        """Print what happened, on stderr: stdout has the lines only."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            click.echo(text, err=True)


def _table(lines: Sequence[Line]) -> Table:
    from rich.table import Table

    table = Table(*COLUMNS, box=None, pad_edge=False, header_style="bold")
    for line in lines:
        behind = "–" if line.lag_records is None else f"{line.lag_records:,} ({line.lag_seconds:.0f} s)"
        table.add_row(
            line.model,
            line.topic,
            line.status if not line.restarts else f"{line.status} ({line.restarts} restarts)",
            f"{line.events_per_second:,.0f}",
            f"{line.batch_seconds:.1f} s",
            behind,
            f"{line.written:,}",
            f"{line.deleted:,}",
        )
    return table
