"""Flink's upsert-kafka as a contender: PyFlink in an environment of its own, made here, with the connector's jar.

Optional: where PyFlink can't be installed there is a word about it and the others run. Its rows come from a generator inside of
Flink, so other than the others it reads no file. The process is started once and its first load does not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measured import say
from dbt.adapters.upsert_kafka.java import cache_dir, fetch_jars

FLINK, CONNECTOR = "apache-flink==2.2.0", "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
SCRIPT = Path(__file__).parent / "flink_job.py"


class Job:
    """A running PyFlink that loads topics as told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def load(self, topic: str, rows: int, guarantee: str) -> float:
        """Seconds that a first load of the narrow table takes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {"topic": topic, "rows": rows, "guarantee": guarantee}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("seconds "):
                return float(line.split()[1])
        raise RuntimeError("Flink ended; its last words are above")


@contextmanager
def job(servers: str) -> Iterator[Job | None]:
    """Flink, ready for orders; None if it can't be had."""
    try:
        python = _python()
        jars = fetch_jars("flink-kafka", [CONNECTOR])
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"Flink is left out, it can't be installed here: {error}")
        yield None
        return
    [jar] = [jar for jar in jars if "flink-sql-connector-kafka" in jar.name]
    command = [str(python), str(SCRIPT), servers, str(jar)]
    process = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Job(process)
    finally:
        process.kill()
        process.wait()


def _python() -> Path:
    """PyFlink's interpreter; its dependencies go with none of ours."""
    folder = cache_dir() / "flink-venv"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        say("Installing PyFlink (once)")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "setuptools<81", FLINK], check=True)
        (folder / "ready").touch()
    return python
