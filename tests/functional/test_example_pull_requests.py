"""The commands of examples/pull_requests, in the order in which a pull request causes them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from tests.dbt_project import PACKAGE_ROOT
from tests.services import Cluster, end_offsets

EXAMPLE = PACKAGE_ROOT / "examples" / "pull_requests"
JOBS = yaml.safe_load((EXAMPLE / "github_workflow.yml").read_text())["jobs"]
MODULES = {"dbt": "dbt.cli.main", "upsert-kafka": "dbt.adapters.upsert_kafka.cli"}


def commands(job: str) -> list[list[str]]:
    texts = [step["run"].replace("${{ github.event.number }}", "7") for step in JOBS[job]["steps"] if "run" in step]
    return [shlex.split(text) for text in texts]


def run(job: str, folder: Path, environment: Mapping[str, str]) -> None:
    for program, *arguments in commands(job):
        command = [sys.executable, "-m", MODULES[program], *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def test_workflow_uses_known_commands() -> None:
    assert {command[0] for job in JOBS for command in commands(job)} == set(MODULES)
    [plan] = commands("plan")
    assert plan[:2] == ["upsert-kafka", "plan"] and {"--defer", "--state"} <= set(plan)


@pytest.mark.nightly
def test_pull_request_is_tried_planned_published_and_dropped(tmp_path: Path) -> None:
    with Cluster() as cluster:
        broker = cluster.bootstrap_servers
        environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": broker, "PYTHONPATH": str(PACKAGE_ROOT), "PR_NUMBER": "7"}
        environment["DBT_PROFILES_DIR"] = "."

        def names() -> set[str]:
            with KafkaSettings(broker).admin() as admin:
                return {name for name in topics.names(admin) if name != "dbt-upsert-kafka.state"}

        folder = tmp_path / "project"
        shutil.copytree(EXAMPLE, folder)
        run("publish", folder, environment)
        assert names() == {"analytics.customers", "analytics.customer_names"}, "the second plan publishes what waited"
        assert sum(end_offsets(broker, "analytics.customer_names").values()) == 2
        (folder / "prod-state").mkdir()
        shutil.copy(folder / "target/manifest.json", folder / "prod-state")

        model = folder / "models/customers.sql"
        model.write_text(model.read_text().replace("'bob'", "'bo'"))
        run("plan", folder, environment)
        comment = (folder / "plan/plan.md").read_text()
        assert "bob@example.com" not in comment and "`name: bo`" in comment
        assert sum(end_offsets(broker, "analytics.customers").values()) == 2, "a plan sends nothing"
        run("try", folder, environment)
        assert {"ci_7.ci_7.customers", "ci_7.ci_7.customer_names"} <= names()
        run("drop", folder, environment)
        assert names() == {"analytics.customers", "analytics.customer_names"}
        run("publish", folder, environment)
        assert sum(end_offsets(broker, "analytics.customers").values()) == 3
