"""One activity as a line: label, step, rows done of rows known, rows per second, seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dbt.adapters.upsert_kafka.progress import Activity

LABEL_WIDTH = 40


class Line:
    """An activity with the rows that were counted last."""

    def __init__(self, activity: Activity) -> None:
        self.activity = activity
        self.rows: int | None = None
        self._step_began = activity.step_began
        self._counted = self._logged = self._grew = time.monotonic()

    def age(self) -> float:
        return time.monotonic() - self.activity.began

    def is_due(self, seconds: float) -> bool:
        """Whether a log line is due: `seconds` after the begin of the activity, and after the last log line."""
        now = time.monotonic()
        if now - max(self._logged, self.activity.began) < seconds:
            return False
        self._logged = now
        return True

    def count(self, seconds: float) -> None:
        """Count the rows of the step, if the last count is this old or of another step."""
        activity, now = self.activity, time.monotonic()
        if activity.step_began != self._step_began:
            self.rows, self._step_began = None, activity.step_began
        elif now - self._counted < seconds:
            return
        self._counted = now
        rows = activity.rows()
        if rows != self.rows:
            self.rows, self._grew = rows, now

    @property
    def columns(self) -> list[str]:
        """Step, rows, rows per second, seconds; those that are not known are left out.

        >>> from dbt.adapters.upsert_kafka.progress import Activity
        >>> began = time.monotonic() - 10
        >>> line = Line(Activity("orders", None, "write", 3_000_000, began, began))
        >>> line.rows = 1_000_000
        >>> line._grew = began + 10
        >>> [*line.columns]
        ['write', '1,000,000 of 3,000,000 rows', '100,000 rows/s', '10 s']
        """
        activity = self.activity
        rows = self.rows if self._step_began == activity.step_began else None
        # Until the last row came: afterwards Spark sorts, or writes what it has read.
        step_seconds = max(self._grew - activity.step_began, 0.001)
        found: list[str] = [activity.step or ""]
        if rows is not None and (rows or activity.known is not None):
            known = activity.known
            of_known = f" of {known:,}" if known is not None and known >= rows else ""
            noun = "row" if (known if of_known else rows) == 1 else "rows"
            found.append(f"{rows:,}{of_known} {noun}{'' if activity.step != 'compute' else ' read'}")
            found += [f"{round(rows / step_seconds):,} rows/s"] if rows else []
        elif activity.known is not None:
            found.append(f"{activity.known:,} row{'' if activity.known == 1 else 's'}")
        return [*filter(None, found), f"{int(self.age())} s"]


def log_line(line: Line) -> str:
    """The line for a log."""
    return f"{line.activity.label}: {', '.join(line.columns)}"


def styled(lines: list[Line], width: int, colors: bool) -> list[str]:
    """The lines for a terminal, each at most `width` wide: labels in one column, the rest cut at the right."""
    # Imported late: commands without a terminal don't need it.
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console
    from rich.text import Text

    label_width = min(LABEL_WIDTH, max(12, width - 50), max(cell_len(line.activity.label) for line in lines))
    console = Console(force_terminal=True, color_system="standard" if colors else None, width=width, legacy_windows=False)
    shown = []
    for line in lines:
        label = Text(line.activity.label, style="bold")
        label.truncate(label_width, overflow="ellipsis", pad=True)
        step, *rest = line.columns
        text = Text.assemble(label, "  ", (set_cell_size(step, 7) if rest else step, "cyan"), "  ", ("  ".join(rest), "dim"))
        text.truncate(width, overflow="ellipsis")
        with console.capture() as capture:
            console.print(text, end="", no_wrap=True)
        shown.append(capture.get())
    return shown
