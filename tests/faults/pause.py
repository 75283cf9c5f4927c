"""Stops dbt in another process before a method of the sink, until the test lets it go on. The code under test has no hooks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka.sinks.steps import Steps
from tests.faults.scene import wait_for

REACHED, GO_ON = "reached", "go_on"
SITECUSTOMIZE = f"""
import sys, threading, time
from pathlib import Path

def pause():
    while not hasattr(sys.modules.get("{Steps.__module__}"), "{Steps.__name__}"):
        time.sleep(0.01)
    steps = sys.modules["{Steps.__module__}"].{Steps.__name__}
    method = steps.METHOD

    def paused(*arguments):
        folder = Path(__file__).parent
        (folder / "{REACHED}").touch()
        while not (folder / "{GO_ON}").exists():
            time.sleep(0.01)
        return method(*arguments)

    steps.METHOD = paused

if "dbt.cli.main" in sys.orig_argv:
    threading.Thread(target=pause, daemon=True).start()
"""


class Pause:
    """A pause before a method of `Steps`, in each dbt process that is started inside `applied`.

    Args:
        folder: created for the pause.
    """

    def __init__(self, folder: Path, method: str) -> None:
        assert hasattr(Steps, method)
        self._folder = folder
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(SITECUSTOMIZE.replace("METHOD", method))

    @contextmanager
    def applied(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("PYTHONPATH", str(self._folder))
            yield

    def wait(self) -> None:
        """Wait until dbt has come to the method."""
        wait_for((self._folder / REACHED).exists, "dbt's pause")

    def go_on(self) -> None:
        (self._folder / GO_ON).touch()
