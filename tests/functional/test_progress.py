"""What a dbt command shows on a terminal while it runs: a new process whose stderr is a pseudo-terminal."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable

import pytest

from tests.dbt_project import Project

MODEL = """{{ config(materialized='upsert_kafka', unique_key='id') }}
select id, sha2(cast(id as string), 512) as text from range(300000)"""


@pytest.mark.nightly
def test_terminal_shows_start_and_steps_and_a_pipe_nothing(dbt_project: Callable[..., Project]) -> None:
    project = dbt_project({"models/orders.sql": MODEL})
    ours, theirs = os.openpty()
    environment = {**project.environment(), "TERM": "xterm"}
    process = subprocess.Popen(
        project.command("run"),
        cwd=project.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    shown: list[bytes] = []

    def read() -> None:
        try:
            while text := os.read(ours, 65536):
                shown.append(text)
        except OSError:
            return  # the end of a pseudo-terminal is an error on Linux

    reader = threading.Thread(target=read)
    reader.start()
    output, _ = process.communicate(timeout=300)
    reader.join()
    os.close(ours)
    text = b"".join(shown).decode()
    assert process.returncode == 0, output.decode() + text
    assert "Starting Spark (local[2])  " in text
    assert "orders  compute  " in text
    assert text.rstrip().endswith("\x1b[J"), "nothing stays on the terminal"
    assert "Stage " not in text, "Spark's own progress bars are off"
    assert "\x1b" not in output.decode() and "Starting Spark" not in output.decode()

    piped = project.succeed("run")
    assert "Starting Spark" not in piped.output and "compute" not in piped.output
