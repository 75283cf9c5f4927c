"""docs/tutorial.md, followed word for word: its files, its commands and its outputs, in a new HOME with the built wheel.

pip takes the versions of requirements.txt and the cache of the machine. Everything else is downloaded, as for a new user.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documented import DOCS, Commands, File, Printed, missing, steps
from tests.packaging.test_distribution import ROOT, build

FOLDER = "shop"
SECONDS_TO_WAIT = 240
# What the environment of the tests must not give to a new user.
NOT_INHERITED = ("COVERAGE", "DBT_", "JDK_", "PYTEST", "PYTHON", "SPARK", "UPSERT_KAFKA", "VIRTUAL_ENV", "XDG_")
# pip reports the cache of the user who runs the tests, before HOME is changed.
PIP_CACHE = [sys.executable, "-m", "pip", "cache", "dir"]


class Reader:
    """A reader of the tutorial: an empty home, a terminal, and the terminals that the tutorial opens in addition."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self.home, self.environment = home, environment
        self.terminals: dict[str, tuple[subprocess.Popen[str], Path]] = {}
        # A terminal keeps its folder and variables from one block of commands to the next.
        self.before: list[str] = []

    def write(self, file: File) -> None:
        path = self.home / FOLDER / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_text(file.text)

    def run(self, commands: Commands) -> str:
        entering = [line for line in commands.lines if line.startswith(("cd ", ". "))]
        script = "\n".join(["set -e", *self.before, *commands.lines])
        self.before += entering
        done = subprocess.run(
            ["sh", "-c", script], cwd=self.home, env=self.environment, text=True, check=False, timeout=900,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert (done.returncode != 0) == commands.fails, f"{commands.lines}: {done.stdout}"
        return done.stdout

    def start(self, name: str, commands: Commands) -> None:
        """Run commands in another terminal. They go on until the end."""
        log = self.home / f"{name}.log"
        script = "\n".join([*commands.lines[:-1], f"exec {commands.lines[-1]}"])
        if "PORT" in script:
            script = script.replace("PORT", self.port())
        with log.open("w") as output:
            process = subprocess.Popen(
                ["sh", "-c", script], cwd=self.home, env=self.environment, text=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.terminals[name] = process, log

    def port(self) -> str:
        """The port that the tutorial tells its reader to look up."""
        found = re.search(r"127\.0\.0\.1:(\d+)", self.terminals["second"][1].read_text())
        assert found is not None
        return found[1]

    def wait_for(self, printed: Printed) -> None:
        process, log = self.terminals[printed.terminal]
        end = time.monotonic() + SECONDS_TO_WAIT
        while missing(printed.output, log.read_text()):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, f"{printed.output} is not in {log.read_text()}"
            time.sleep(0.2)

    def close(self) -> None:
        for process, _ in reversed(self.terminals.values()):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    wheels, home, programs = tmp_path / "wheels", tmp_path / "home", tmp_path / "programs"
    for folder in (wheels, home, programs):
        folder.mkdir()
    build("wheel", ROOT, wheels)
    pins = re.findall(r"^(\S+==\S+?)(?: ;.*)? \\$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    (wheels / "constraints.txt").write_text("\n".join(pins))
    # The tutorial's python3.
    (programs / "python3").symlink_to(os.path.realpath(sys.executable))
    cache = subprocess.run(PIP_CACHE, capture_output=True, text=True, check=True).stdout.strip()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
    environment = {
        **inherited,
        "HOME": str(home),
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "PIP_CACHE_DIR": cache,
        "PIP_FIND_LINKS": f"{wheels} {os.environ.get('PIP_FIND_LINKS', '')}".strip(),
        "PIP_CONSTRAINT": str(wheels / "constraints.txt"),
    }
    reader = Reader(home, environment)
    yield reader
    reader.close()


@pytest.mark.nightly
def test_tutorial_works_word_for_word(reader: Reader) -> None:
    for step in steps(DOCS / "tutorial.md"):
        if isinstance(step, File):
            reader.write(step)
        elif isinstance(step, Printed):
            reader.wait_for(step)
        elif step.terminal:
            reader.start(step.terminal, step)
        else:
            printed = reader.run(step)
            assert not missing(step.output or "", printed), f"{step.output} is not in {printed}"
