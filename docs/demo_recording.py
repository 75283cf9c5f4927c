"""Writes docs/demo.svg: the output of `make demo` as a terminal shows it. Run it after a change of what the demo prints."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 118


def main() -> None:
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH), "FORCE_COLOR": "1"}
    command = [sys.executable, str(ROOT / "examples" / "pageviews" / "demo.py")]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=theirs) as demo:
        os.close(theirs)
        shown = read_all(ours)
    if demo.returncode != 0:
        sys.exit(demo.returncode)
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print("[yellow]$[/] make demo")
    console.print(Text.from_ansi(shown.replace("\r\n", "\n").rstrip()))
    svg = console.export_svg(title="dbt-upsert-kafka", unique_id="demo")
    # Without the fonts that rich would let the reader's browser download.
    (ROOT / "docs" / "demo.svg").write_text(re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL))


def read_all(terminal: int) -> str:
    shown = b""
    try:
        while text := os.read(terminal, 65536):
            shown += text
    except OSError as error:
        # Linux reports the end of a pseudo-terminal as an error.
        if error.errno != errno.EIO:
            raise
    os.close(terminal)
    return shown.decode()


if __name__ == "__main__":
    main()
