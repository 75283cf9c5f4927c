"""Flink's upsert-kafka as a contender: PyFlink with the connector's jar, in a virtual environment that is created here.

Skipped with a message if PyFlink can't be installed. Flink generates its rows, the other contenders read them from a file. The
process is started once, and its first load is not measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measured import say
from dbt.adapters.upsert_kafka.java import cache_dir, fetch_jars

FLINK, CONNECTOR = "apache-flink==2.2.0", "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
SCRIPT = Path(__file__).parent / "flink_job.py"


class Job:
    """A running PyFlink process that loads topics on request."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def load(self, topic: str, rows: int, guarantee: str) -> float:
        """Seconds of a first load of the narrow table."""
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {"topic": topic, "rows": rows, "guarantee": guarantee}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("seconds "):
                return float(line.split()[1])
        raise RuntimeError("Flink ended before the load was complete. Its output is above.")


@dataclass(frozen=True)
class Environment:
    """What runs a PyFlink script."""

    python: Path
    jar: Path
    """The connector."""


def environment() -> Environment | None:
    """PyFlink, which is installed on first use; None if it can't be installed."""
    try:
        python = _python()
        jars = fetch_jars("flink-kafka", [CONNECTOR])
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"Flink is skipped, because it can't be installed: {error}")
        return None
    [jar] = [jar for jar in jars if "flink-sql-connector-kafka" in jar.name]
    return Environment(python, jar)


@contextmanager
def job(servers: str) -> Iterator[Job | None]:
    """A running Flink, or None if it can't be installed."""
    found = environment()
    if found is None:
        yield None
        return
    command = [str(found.python), str(SCRIPT), servers, str(found.jar)]
    process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Job(process)
    finally:
        process.kill()
        process.wait()


def _python() -> Path:
    """Python with PyFlink, whose dependencies conflict with ours."""
    folder = cache_dir() / "flink-venv"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        say("Installing PyFlink (once)")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "setuptools<81", FLINK], check=True)
        (folder / "ready").touch()
    return python
