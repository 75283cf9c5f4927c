"""The development environment and `dbt init`: dbt commands in new processes, without Spark and Kafka."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml


def dbt(folder: Path, *arguments: str, answers: str = "") -> str:
    command = [sys.executable, "-I", "-m", "dbt.cli.main", *arguments]
    done = subprocess.run(command, cwd=folder, input=answers, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_editable_install_is_listed_by_dbt(tmp_path: Path) -> None:
    assert "- upsert_kafka: " in dbt(tmp_path, "--version")


@pytest.mark.parametrize("answer", ["n", pytest.param("y", marks=pytest.mark.nightly)])
def test_init_asks_whether_topics_must_match_flinks(tmp_path: Path, answer: str) -> None:
    # The adapter's number in the list depends on what is installed.
    listed = dbt(tmp_path, "--version").partition("Plugins:")[2]
    number = [line.split()[1] for line in listed.splitlines() if line.strip()].index("upsert_kafka:") + 1
    answers = "\n".join([str(number), "", "", "", answer, ""])
    output = dbt(tmp_path, "init", "shop", "--profiles-dir", str(tmp_path), answers=answers)
    [target] = yaml.safe_load((tmp_path / "profiles.yml").read_text())["shop"]["outputs"].values()
    assert target == {"type": "upsert_kafka", "bootstrap_servers": "embedded", "schema": "analytics", "threads": 4}
    models = yaml.safe_load((tmp_path / "shop" / "dbt_project.yml").read_text())["models"]
    plain = {"+json_encode_decimal_as_plain_number": True, "+json_timestamp_format_standard": "ISO-8601"}
    assert models == {**(plain if answer == "n" else {}), "shop": {"example": {"+materialized": "view"}}}
    assert ("+json_timestamp_format_standard: ISO-8601" in output) == (answer == "n")
    dbt(tmp_path / "shop", "parse", "--profiles-dir", str(tmp_path))
