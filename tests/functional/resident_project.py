"""A dbt project whose commands run through `upsert-kafka dbt`, for test_resident.py."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.dbt_project import Project
from tests.services import Record, read_topic

SECONDS = 600


class ResidentProject:
    """A project whose commands run in its resident dbt."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.folder = project.folder
        inherited = project.environment()
        path = os.pathsep.join([inherited["PYTHONPATH"], str(self.folder / "modules")])
        self.environment = {**inherited, "PYTHONPATH": path}

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Start a command; `more` are environment variables."""
        return subprocess.Popen(
            self.command(*arguments), cwd=self.folder, env={**self.environment, **more}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "dbt.adapters.upsert_kafka", "dbt", *arguments]

    def run(self, *arguments: str, **more: str) -> tuple[int, str]:
        process = self.start(*arguments, **more)
        try:
            output, _ = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
        return process.returncode, output

    def succeed(self, *arguments: str, **more: str) -> str:
        code, output = self.run(*arguments, **more)
        assert code == 0, output
        return output

    def status(self) -> dict[str, str]:
        """The lines of --status by their heads; empty if no resident runs."""
        code, output = self.run("--status")
        return dict(line.split(":", 1) for line in output.splitlines() if ":" in line) if code == 0 else {}

    def processes(self) -> tuple[int, int]:
        """The process ids of the resident and of Spark; 0 for Spark if it was not started."""
        status = self.status()
        found = [re.search(r"process (\d+)", status[head]) for head in ("Resident dbt", "Spark")]
        assert found[0] is not None
        return int(found[0][1]), int(found[1][1]) if found[1] else 0

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a shell script, in which `$DBT` is the command."""
        return subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env={**self.environment, "DBT": " ".join(self.command())}, text=True,
            capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    def records(self, model: str) -> list[Record]:
        servers, schema = self.project.profile["bootstrap_servers"], self.project.profile["schema"]
        return read_topic(servers, f"{schema}.{model}")

    def topic(self, model: str) -> list[str]:
        return [json.loads(record.value or b"{}")["name"] for record in self.records(model)]

    def beats(self, *names: str) -> list[str]:
        """What the tasks of these names have counted in the JVM; 'null' before they began."""
        return self._properties(*names)

    def growing(self, *names: str) -> list[str]:
        """Which of these tasks run: they count between two looks at their numbers."""
        counts = self._properties(*names, None, *names)
        return [name for name, first, last in zip(names, counts, counts[len(names) + 1 :], strict=False) if first != last]

    def _properties(self, *names: str | None) -> list[str]:
        """Java's properties, one after the other. None waits for a second."""
        calls = [
            f"reflect('java.lang.System', 'getProperty', '{name}')" if name else "reflect('java.lang.Thread', 'sleep', 1000L)"
            for name in names
        ]
        output = self.succeed("show", "--inline", f"SELECT concat_ws(',', {', '.join(calls)}) AS found", "--output", "json")
        found = re.search(r'"found": "([^"]*)"', output)
        assert found is not None, output
        return found[1].split(",")

    def wait_for(self, text: str, process: subprocess.Popen[str]) -> str:
        """Read the output of a command until it has a text."""
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if text in line:
                return output
        raise AssertionError(f"the command ended without {text!r}:\n{output}")

    def interrupt(self, number: signal.Signals, *arguments: str) -> tuple[int, str]:
        """Send a signal to the client while `slow` runs."""
        process = self.start(*(arguments or ("run", "-s", "slow")))
        self.wait_for("START sql table model", process)
        time.sleep(2)
        process.send_signal(number)
        output, _ = process.communicate(timeout=SECONDS)
        return process.returncode, output

    def has_no_command(self) -> bool:
        return self.status()["Commands"].endswith(" 0 running")

    def stop(self) -> None:
        self.run("--stop")


def wait_until(is_true: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < until, "did not happen in time"
        time.sleep(0.3)


def captured(command: list[str], dbt: ResidentProject, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command with stdout and stderr apart."""
    return subprocess.run(
        command, cwd=folder or dbt.folder, env=dbt.environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
