"""`make demo`: a short story, and the recording of it in the README has its words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape

import pytest

from tests.dbt_project import PACKAGE_ROOT

# What differs from run to run.
VARIES = re.compile(r"in \d+(\.\d+)?s|--from [\d:,]+")


@pytest.mark.nightly
def test_demo_is_short_and_the_recording_shows_it() -> None:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), "NO_COLOR": "1", "COLUMNS": "118"}
    command = [sys.executable, "examples/pageviews/demo.py"]
    done = subprocess.run(command, cwd=PACKAGE_ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    assert len(lines) < 25
    svg = (PACKAGE_ROOT / "docs" / "demo.svg").read_text()
    # One text element per style; rows have an y of their own.
    recorded: dict[str, str] = {}
    for row, text in re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>(.*?)</text>', svg):
        recorded[row] = recorded.get(row, "") + unescape(text)
    shown = {plain(text) for text in recorded.values()}
    # The last line has paths of this installation.
    assert [line for line in lines[:-1] if plain(line) not in shown] == []


def plain(text: str) -> str:
    return re.sub(r"\s+", "", VARIES.sub("", text.replace("\xa0", " ")))
