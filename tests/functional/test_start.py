"""When a dbt command starts Java: in the background if the command needs Spark, not at all otherwise, and never to stay."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka.java import find_java
from tests.dbt_project import Project

MODEL = "{{ config(materialized='upsert_kafka', unique_key='id') }} SELECT 1 AS id, 'one' AS name"
END_SECONDS = 120
SLOW_SECONDS = 15


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the process id of each Java that was started."""
    pids, home = tmp_path / "started", tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text((find_java().resolve().parents[1] / "release").read_text())
    (home / "bin" / "java").write_text(f'#!/bin/sh\necho $$ >> {pids}\nexec {find_java()} "$@"\n')
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    return pids


def running(pids: Path) -> list[int]:
    found = [int(line) for line in pids.read_text().split()]
    return [pid for pid in found if Path(f"/proc/{pid}").exists() and b"java" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_ls_and_parse_start_no_java(tmp_path: Path, started: Path) -> None:
    project = Project(tmp_path / "project", "embedded").write({"models/one.sql": MODEL})
    for command in ("ls", "parse"):
        project.succeed(command, new_process=True)
    assert not started.exists()


def test_command_that_ends_while_spark_starts_leaves_no_java(tmp_path: Path, started: Path) -> None:
    project = Project(tmp_path / "project", "embedded").write({"models/one.sql": "SELECT {% if %}"})
    done = project.run("run", new_process=True)
    assert done.exit_code == 2 and "Compilation Error" in done.output, done.output
    assert started.exists(), "Spark was not started in the background"
    until = time.monotonic() + END_SECONDS
    while still := running(started):
        assert time.monotonic() < until, f"Java is still running: {[Path(f'/proc/{pid}/cmdline').read_text() for pid in still]}"
        time.sleep(0.2)
    assert os.listdir(tmp_path / "project" / ".upsert_kafka")


def test_command_does_not_wait_for_its_java_which_ends_after_it(tmp_path: Path, broker: str, started: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    # A Java that needs long to end, with the files that it has inherited open.
    java = tmp_path / "jdk" / "bin" / "java"
    java.write_text(
        f"#!/bin/sh\necho $$ >> {started}\n"
        f'case "$*" in *launcher.Main*) exec {find_java()} "$@";; esac\n'
        f'{find_java()} "$@"\nsleep {SLOW_SECONDS}\n'
    )
    project = Project(tmp_path / "project", broker).write({"models/one.sql": MODEL})
    folders = {"spark.local.dir": str(temporary), "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={temporary}"}
    project.profile["spark"] = {**project.profile["spark"], **folders}
    project.save_profile()
    # Returns when the command has ended and nobody has its stdout open.
    assert "1 new" in project.succeed("run", new_process=True).output
    assert running(started), "the command, or who reads its output, waited for Java"
    until = time.monotonic() + END_SECONDS
    while running(started):
        assert time.monotonic() < until, "Java is still running"
        time.sleep(0.2)
    assert not list(temporary.iterdir())


def test_error_of_the_start_is_one_line_of_the_first_model(tmp_path: Path, broker: str) -> None:
    project = Project(tmp_path, broker, spark={"spark.driver.memory": "a lot"}).write({"models/one.sql": MODEL})
    done = project.run("run", new_process=True)
    assert done.exit_code != 0
    [line] = [line for line in done.output.splitlines() if "Spark did not start" in line]
    assert "Traceback" not in done.output, line
