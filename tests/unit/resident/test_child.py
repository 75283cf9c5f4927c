"""A forked child has what a new Python process has."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.resident import child


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_has_the_buffer_that_python_gives_it(monkeypatch: pytest.MonkeyPatch, unbuffered: str) -> None:
    """It decides about the exit code after the reader of a pipe has ended: what stays in a buffer can't be written at the end."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    reading, writing = os.pipe()
    ours: Any = child._opened(writing, sys.__stdout__)  # type: ignore[arg-type]
    described = "type(o.buffer).__name__, o.line_buffering, o.write_through"
    code = f"import sys; o = sys.stdout; print({described})"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert plain == [str(value) for value in eval(described, {"o": ours})]
    for file in (reading, writing):
        os.close(file)
