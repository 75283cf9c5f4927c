"""The dbt commands of examples/containers and examples/airflow, each in a new process and a folder with only the project."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.dbt_project import PACKAGE_ROOT
from tests.services import read_topic

EXAMPLES = PACKAGE_ROOT / "examples"
EXAMPLE = EXAMPLES / "containers"
COMMANDS = ["run", "test", "docs generate"]


def test_compose_workflow_and_dag_have_the_same_commands() -> None:
    compose = yaml.safe_load((EXAMPLE / "compose.yml").read_text())["services"]
    assert [" ".join(service["command"]) for service in compose.values() if "command" in service] == COMMANDS
    assert not [service for service in compose.values() if "volumes" in service]
    jobs = yaml.safe_load((EXAMPLE / "github_workflow.yml").read_text())["jobs"]
    assert [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step] == [f"dbt {c}" for c in COMMANDS]
    module = ast.parse((EXAMPLES / "airflow" / "orders_dag.py").read_text())
    [commands] = [
        node.value for node in module.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMMANDS"
    ]
    assert list(ast.literal_eval(commands).values()) == COMMANDS


@pytest.mark.nightly
def test_commands_of_the_example_run_in_empty_folders(broker: str, tmp_path: Path) -> None:
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": broker, "PYTHONPATH": str(PACKAGE_ROOT)}
    for number, command in enumerate(COMMANDS):
        folder = tmp_path / f"container_{number}"
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".upsert_kafka", "target", "logs"))
        arguments = [sys.executable, "-m", "dbt.cli.main", *command.split(), "--profiles-dir", str(folder)]
        done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    totals = [json.loads(record.value or b"null") for record in read_topic(broker, "analytics.orders_per_customer")]
    assert sorted((row["customer"], row["orders"]) for row in totals) == [("ann", 2), ("bob", 1)]
    assert len(json.loads((folder / "target" / "catalog.json").read_text())["nodes"]) == 2
