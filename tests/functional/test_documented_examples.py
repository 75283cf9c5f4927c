"""Examples of reference pages: the two lines for plain json in formats.md, and the consumers in consumers.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Timer

import pytest

from dbt.adapters.upsert_kafka.embedded.node import kafka_jars
from tests.dbt_project import Project
from tests.documented import DOCS, File, steps
from tests.services import read_topic

PAYMENTS = """{{ config(materialized='upsert_kafka', unique_key='id') }}
select id, cast(amount as decimal(10, 2)) as amount, cast('2026-11-02 08:05:00.5' as timestamp_ntz) as paid_at
from values (1, 10), (2, 45), (3, 187530) as payments(id, amount)"""
# A model with another format resets the two options, as formats.md says.
AVRO = """{{ config(materialized='upsert_kafka', unique_key='id', format='avro', RESET) }} select 1 as id"""
USERS = """{{ config(materialized='upsert_kafka', unique_key='user_id', sink_delivery_guarantee='exactly-once', partitions=1) }}
select user_id, name from values (1, 'ann'), (2, 'bob') as users(user_id, name)"""


def test_two_lines_of_the_project_make_json_plain(dbt_project: Callable[..., Project], broker: str, schema_name: str) -> None:
    section = (DOCS / "formats.md").read_text().split("\n## json\n")[1]
    [lines, *_] = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    [reset, *_] = re.findall(r"`(json_encode_decimal_as_plain_number=none,\s+json_timestamp_format_standard=none)`", section)
    project = dbt_project({"models/payments.sql": PAYMENTS, "models/other.sql": AVRO.replace("RESET", reset)})
    path = project.folder / "dbt_project.yml"
    path.write_text(path.read_text() + lines)
    project.succeed("run")
    values = {record.value for record in read_topic(broker, f"{schema_name}.payments")}
    amounts = {1: "10.00", 2: "45.00", 3: "187530.00"}
    assert values == {f'{{"id":{i},"amount":{a},"paid_at":"2026-11-02T08:05:00.5"}}'.encode() for i, a in amounts.items()}


@pytest.mark.nightly
def test_consumers_follow_the_table(dbt_project: Callable[..., Project], broker: str, schema_name: str, tmp_path: Path) -> None:
    project = dbt_project({"models/users.sql": USERS})
    project.succeed("run")
    project.write({"models/users.sql": USERS.replace("(2, 'bob')", "(3, 'cleo')")})
    project.succeed("run")
    programs = {step.path: step.text for step in steps(DOCS / "consumers.md") if isinstance(step, File)}
    for path, text in programs.items():
        (tmp_path / path).write_text(text)

    python = [sys.executable, "consumer.py", broker, f"{schema_name}.users"]
    assert last_line(python, tmp_path, "cleo") == "{1: {'user_id': 1, 'name': 'ann'}, 3: {'user_id': 3, 'name': 'cleo'}}"

    if shutil.which("javac") is None:
        pytest.skip("javac is not installed: the consumer in Java was not run")
    classes = os.pathsep.join([str(tmp_path), f"{kafka_jars()}/*"])
    subprocess.run(["javac", "-cp", classes, "Users.java"], cwd=tmp_path, check=True)
    java = ["java", "-cp", classes, "Users", broker, f"{schema_name}.users"]
    expected = '{{"user_id":1}={"user_id":1,"name":"ann"}, {"user_id":3}={"user_id":3,"name":"cleo"}}'
    assert last_line(java, tmp_path, "cleo") == expected


def last_line(command: list[str], folder: Path, word: str) -> str:
    """What an endless consumer prints when it has read everything: the line without bob, after the one with `word`."""
    with subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE) as process:
        watchdog = Timer(60, process.kill)
        watchdog.start()
        assert process.stdout is not None
        line = ""
        for line in process.stdout:
            if word in line and "bob" not in line:
                break
        watchdog.cancel()
        process.kill()
    return line.strip()
