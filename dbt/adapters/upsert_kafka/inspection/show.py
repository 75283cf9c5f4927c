"""Output of the commands: a table on a terminal, plain columns in a pipe, JSON on request."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from dbt.adapters.upsert_kafka.formats import exact_json
from dbt.adapters.upsert_kafka.formats.decode import as_json


def is_terminal() -> bool:
    return sys.stdout.isatty()


def json_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object per line."""
    for row in rows:
        click.echo(exact_json.dumps(row, as_json))


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """All rows as a table."""
    if is_terminal():
        from rich.console import Console
        from rich.table import Table

        rich_table = Table(*names, box=None, pad_edge=False, header_style="bold")
        for row in rows:
            rich_table.add_row(*row)
        Console(markup=False, highlight=False).print(rich_table)
        return
    lines = [list(names), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    for line in lines:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def pairs(values: Mapping[str, Any]) -> None:
    """One line per value that is known."""
    known = {name: value for name, value in values.items() if value not in (None, "", ())}
    width = max(map(len, known), default=0)
    for name, value in known.items():
        click.echo(f"{name.ljust(width)}  {value}")
