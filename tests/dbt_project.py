"""dbt projects for the tests: made from a dict of files, run by dbt in a process for each command, as users do, or for many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
# Runs dbt with the arguments of every line it is given, and ends what that printed with a line of its own.
MANY_COMMANDS = """
import json, sys
from dbt.cli.main import dbtRunner
for line in sys.stdin:
    done = dbtRunner().invoke(json.loads(line))
    if done.exception:
        print(done.exception)
    print("\\n\\0", 0 if done.success else 2 if done.exception else 1, sep="", flush=True)
"""


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
        # A Spark that runs elsewhere has its settings there.
        own = {} if "remote" in profile else {"master": "local[2]", "spark": {**QUICK_SPARK, **(spark or {})}}
        self.profile: dict[str, Any] = {
            "type": "upsert_kafka",
            "schema": schema,
            "bootstrap_servers": bootstrap_servers,
            "threads": 4,
            **own,
            **profile,
        }
        self.write({"dbt_project.yml": "name: shop\nversion: '1.0'\nprofile: shop\nflags: {send_anonymous_usage_stats: false}\n"})
        self.save_profile()
        self._many: subprocess.Popen[str] | None = None

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
        return [sys.executable, "-m", "dbt.cli.main", *self._here(arguments)]

    def _here(self, arguments: tuple[str, ...]) -> list[str]:
        folder = str(self.folder)
        return [*arguments, "--project-dir", folder, "--profiles-dir", folder]

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
        # A JVM that lives for one command saves a third of its time without its best compiler.
        jvm = {"SPARK_SUBMIT_OPTS": QUICK_JVM}
        return {**jvm, **os.environ, "PYTHONPATH": path, "NO_COLOR": "1", "DBT_USE_COLORS": "false"}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a dbt command and return at once."""
        return self._popen(self.command(*arguments), subprocess.DEVNULL)

    def _popen(self, command: list[str], stdin: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment(), text=True,
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    @contextmanager
    def one_process(self) -> Iterator[None]:
        """Run the commands of this block in one new process, which saves the start of a Spark for each but the first."""
        self._many = self._popen([sys.executable, "-c", MANY_COMMANDS], subprocess.PIPE)
        try:
            yield
            assert self._many.stdin is not None
            self._many.stdin.close()
            assert self._many.wait(60) == 0
        finally:
            self._many.kill()
            self._many.wait()
            self._many = None

    def run(self, *arguments: str, timeout: float = 600) -> Outcome:
        """Run a dbt command to its end, in a new process unless `one_process` says otherwise."""
        results = self.folder / "target" / "run_results.json"
        results.unlink(missing_ok=True)
        exit_code, output = self._one_of_many(arguments) if self._many else self._alone(arguments, timeout)
        return Outcome(exit_code, output, json.loads(results.read_text()) if results.exists() else {})

    def _alone(self, arguments: tuple[str, ...], timeout: float) -> tuple[int, str]:
        process = self.start(*arguments)
        try:
            output, _ = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return process.returncode, output

    def _one_of_many(self, arguments: tuple[str, ...]) -> tuple[int, str]:
        assert self._many is not None and self._many.stdin is not None and self._many.stdout is not None
        print(json.dumps(self._here(arguments)), file=self._many.stdin, flush=True)
        output: list[str] = []
        for line in self._many.stdout:
            if line.startswith("\0"):
                return int(line[1:]), "".join(output)
            output.append(line)
        raise AssertionError(f"dbt ended with {self._many.wait()}:\n{''.join(output)}")

    def succeed(self, *arguments: str, timeout: float = 600) -> Outcome:
        """Run a dbt command that must succeed."""
        outcome = self.run(*arguments, timeout=timeout)
        assert outcome.exit_code == 0, outcome.output
        return outcome
