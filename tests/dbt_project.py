"""dbt projects for the tests: made from a dict of files, run by dbt in a process of its own, as users do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

# Where every query is another one and its rows are few, the optimizing compiler costs more than it gives.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK_SPARK = {
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JVM,
}
PACKAGE_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Outcome:
    """What a dbt command left: its exit code, its output, and target/run_results.json if it wrote one."""

    exit_code: int
    output: str
    run_results: dict[str, Any] = field(default_factory=dict)

    def response(self, name: str) -> dict[str, Any]:
        """adapter_response of a node by its name."""
        return self._result(name)["adapter_response"]

    def message(self, name: str) -> str:
        return self._result(name)["message"]

    def _result(self, name: str) -> dict[str, Any]:
        for result in self.run_results.get("results", []):
            if name in result["unique_id"].split("."):
                return result
        raise AssertionError(f"dbt ran no node named {name}:\n{self.output}")


class Project:
    """A dbt project folder with its own profile."""

    def __init__(
        self,
        folder: Path,
        bootstrap_servers: str,
        schema: str = "analytics",
        spark: Mapping[str, Any] | None = None,
        **profile: Any,
    ) -> None:
        self.folder = folder
        self.profile: dict[str, Any] = {
            "type": "upsert_kafka",
            "schema": schema,
            "bootstrap_servers": bootstrap_servers,
            "threads": 4,
            "master": "local[2]",
            "spark": {**QUICK_SPARK, **(spark or {})},
            **profile,
        }
        self.write({"dbt_project.yml": "name: shop\nversion: '1.0'\nprofile: shop\nflags: {send_anonymous_usage_stats: false}\n"})
        self.save_profile()

    def save_profile(self) -> None:
        self.write({"profiles.yml": yaml.safe_dump({"shop": {"target": "dev", "outputs": {"dev": self.profile}}})})

    def write(self, files: Mapping[str, str]) -> Project:
        """Write files by their path in the project; others stay."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return self

    def command(self, *arguments: str) -> list[str]:
        folder = str(self.folder)
        return [sys.executable, "-m", "dbt.cli.main", *arguments, "--project-dir", folder, "--profiles-dir", folder]

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
        # A JVM that lives for one command saves a third of its time without its best compiler.
        jvm = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
        return {**jvm, **os.environ, "PYTHONPATH": path, "NO_COLOR": "1", "DBT_USE_COLORS": "false"}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a dbt command and return at once."""
        return subprocess.Popen(
            self.command(*arguments), cwd=self.folder, env=self.environment(), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *arguments: str, timeout: float = 600) -> Outcome:
        """Run a dbt command to its end, in a new process."""
        results = self.folder / "target" / "run_results.json"
        results.unlink(missing_ok=True)
        process = self.start(*arguments)
        try:
            output, _ = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return Outcome(process.returncode, output, json.loads(results.read_text()) if results.exists() else {})

    def succeed(self, *arguments: str) -> Outcome:
        """Run a dbt command that must succeed."""
        outcome = self.run(*arguments)
        assert outcome.exit_code == 0, outcome.output
        return outcome
