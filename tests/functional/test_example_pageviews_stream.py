"""examples/pageviews_stream: the demo ends by itself, and the topic equals the events."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.dbt_project import PACKAGE_ROOT

EXAMPLE = PACKAGE_ROOT / "examples" / "pageviews_stream"


@pytest.mark.nightly
def test_demo_shows_results_while_events_flow_and_ends() -> None:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), "DEMO_SECONDS": "15", "NO_COLOR": "1"}
    command = [sys.executable, str(EXAMPLE / "demo.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The topic equals the events." in done.stdout
    seen = [int(number) for number in re.findall(r"(\d+) events:", done.stdout)]
    assert len(seen) > 1 and seen[0] < seen[-1] == 3000, done.stdout
