"""dbt projects for the tests, made from a dict of files.

dbt runs in one process that the tests of a pytest worker share. This saves the import of dbt and the start of a JVM for each
command. A test that needs a process of its own asks for one: `start`, or `new_process=True`.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any

import yaml

# Each query is different and has few rows, so compiling with C2 costs more than it saves.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK_SPARK = {
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK_JVM,
}
# Settings that make Delta fast on tables of a few rows.
QUICK_DELTA = {
    # Delta's default is 50 tasks.
    "spark.databricks.delta.snapshotPartitions": 1,
    # The default log store runs the program readlink for each access to a file.
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.databricks.delta.stats.collect": "false",
}
# Maven coordinates for `jars:` of the profile. `make matrix` sets them where the registry lacks a jar of the row's Spark.
OTHER_JARS = [jar for jar in os.environ.get("UPSERT_KAFKA_TEST_JARS", "").split(",") if jar]
PACKAGE_ROOT = Path(__file__).resolve().parents[1]
# The profile of a project that may share a process: nothing in it needs another JVM, environment or broker.
SHAREABLE = {"type", "schema", "bootstrap_servers", "threads", "topic_defaults", "master", "spark", "jars"}
# Every project leaves classes and sessions in the JVM.
PROJECTS_PER_PROCESS = 15
# Reads a command per line, runs it, and ends what dbt printed with a line of its own that has the exit code. Each command has a
# thread of its own, and so one in the JVM: Hive keeps the connection to the catalog of an earlier project in its thread.
SERVER = """
import json, os, sys
from click.testing import CliRunner
from concurrent.futures import ThreadPoolExecutor
from dbt.cli.main import dbtRunner
from dbt.adapters.upsert_kafka.spark import session
folder = os.getcwd()
def upsert_kafka(arguments):
    from dbt.adapters.upsert_kafka.cli import main
    done = CliRunner().invoke(main, arguments)
    print(done.output)
    if done.exception and not isinstance(done.exception, SystemExit):
        print(repr(done.exception))
    return done.exit_code
def dbt(arguments):
    done = dbtRunner().invoke(arguments)
    if done.exception:
        print(done.exception)
    return 0 if done.success else 2 if done.exception else 1
for line in sys.stdin:
    command = json.loads(line)
    if command["new_spark"]:
        session.stop()
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(folder + os.sep):
                del sys.modules[name]
    folder = command["folder"]
    os.chdir(folder)
    program, *arguments = command["arguments"]
    with ThreadPoolExecutor(1) as thread:
        exit_code = thread.submit(upsert_kafka if program == "upsert-kafka" else dbt, arguments).result()
    print("\\n\\0", exit_code, sep="", flush=True)
"""


@dataclass(frozen=True)
class Outcome:
    """A dbt command's exit code, its output, and target/run_results.json if it wrote one."""

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


class DbtServer:
    """A process that runs the dbt commands of many projects, one after the other. Each project gets a Spark of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._environment: Mapping[str, str] = {}
        self._projects: set[Path] = set()

    def run(self, project: Project, arguments: list[str], timeout: float, new_spark: bool) -> tuple[int, str]:
        """Exit code and output of a dbt command. With `new_spark` it has the project's catalog only, as a new process."""
        if self._environment != project.environment() or len(self._projects | {project.folder}) > PROJECTS_PER_PROCESS:
            self.stop()
        if self._process is None:
            self._environment = project.environment()
            self._process = project.popen([sys.executable, "-c", SERVER], subprocess.PIPE)
        self._projects.add(project.folder)
        assert self._process.stdin is not None and self._process.stdout is not None
        watchdog = Timer(timeout, self._process.kill)
        watchdog.start()
        try:
            command = {"new_spark": new_spark, "folder": str(project.folder), "arguments": arguments}
            print(json.dumps(command), file=self._process.stdin, flush=True)
            output: list[str] = []
            for line in self._process.stdout:
                if line.startswith("\0"):
                    return int(line[1:]), "".join(output)
                output.append(line)
        finally:
            watchdog.cancel()
        self.stop()
        raise AssertionError(f"dbt's process ended in {arguments}:\n{''.join(output)}")

    def release(self, project: Project) -> None:
        """End the use of a project that a test starts processes for: it may kill them, and expects that nobody else is there."""
        if project.folder in self._projects:
            self.stop()

    def stop(self) -> None:
        """End the process, which stops its Spark first."""
        process, self._process, self._projects = self._process, None, set()
        if process is not None:
            try:
                process.communicate(timeout=60)
            finally:
                process.kill()


_server = DbtServer()
atexit.register(_server.stop)


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
        quick = {**QUICK_SPARK, **(QUICK_DELTA if profile.get("file_format") == "delta" else {})}
        # The settings of a Spark Connect server are set where it runs.
        own = {} if "remote" in profile else {"master": "local[2]", "spark": {**quick, **(spark or {})}}
        if OTHER_JARS and "remote" not in profile:
            own["jars"] = OTHER_JARS
        self.profile: dict[str, Any] = {
            "type": "upsert_kafka",
            "schema": schema,
            "bootstrap_servers": bootstrap_servers,
            "threads": 4,
            **own,
            **profile,
        }
        # The second flag is the default from dbt-core 1.11 on.
        flags = "flags: {send_anonymous_usage_stats: false, require_generic_test_arguments_property: true}"
        self.write({"dbt_project.yml": f"name: shop\nversion: '1.0'\nprofile: shop\n{flags}\n"})
        self.save_profile()
        self._block: DbtServer | None = None
        self._new_spark = True

    def save_profile(self) -> None:
        self.write({"profiles.yml": yaml.safe_dump({"shop": {"target": "dev", "outputs": {"dev": self.profile}}})})

    def write(self, files: Mapping[str, str]) -> Project:
        """Write files by their path in the project; others stay."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return self

    def command(self, *arguments: str, program: str = "dbt") -> list[str]:
        module = "dbt.cli.main" if program == "dbt" else "dbt.adapters.upsert_kafka.cli"
        return [sys.executable, "-m", module, *self._here(arguments)]

    def _here(self, arguments: tuple[str, ...]) -> list[str]:
        folder = str(self.folder)
        return [*arguments, "--project-dir", folder, "--profiles-dir", folder]

    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(PACKAGE_ROOT), os.environ.get("PYTHONPATH")]))
        jvm = {"SPARK_SUBMIT_OPTS": QUICK_JVM}
        # pytest changes its variable with each test, and the shared process must not depend on it.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        return {**jvm, **inherited, "PYTHONPATH": path, "NO_COLOR": "1", "DBT_USE_COLORS": "false"}

    def start(self, *arguments: str, program: str = "dbt") -> subprocess.Popen[str]:
        """Start a dbt command in a new process and return at once."""
        _server.release(self)
        return self.popen(self.command(*arguments, program=program), subprocess.DEVNULL)

    def popen(self, command: list[str], stdin: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment(), text=True,
            stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    @contextmanager
    def one_process(self) -> Iterator[None]:
        """Run the commands of this block on one Spark, as a process does that invokes dbt several times."""
        self._block, self._new_spark = _server if self._is_shareable() else DbtServer(), True
        try:
            yield
        finally:
            if self._block is not _server:
                self._block.stop()
            self._block, self._new_spark = None, True

    def run(self, *arguments: str, timeout: float = 600, new_process: bool = False, program: str = "dbt") -> Outcome:
        """Run a dbt command to its end; with `new_process` as users do, else as `one_process` says or in the shared process.

        Args:
            program: `dbt`, or `upsert-kafka` for its commands with dbt's flags, which share the process too.
        """
        results = self.folder / "target" / "run_results.json"
        results.unlink(missing_ok=True)
        server = self._block or (_server if self._is_shareable() and not new_process else None)
        if server is None:
            exit_code, output = self._run_alone(arguments, timeout, program)
        else:
            exit_code, output = server.run(self, [program, *self._here(arguments)], timeout, self._new_spark)
            self._new_spark = self._block is None
        return Outcome(exit_code, output, json.loads(results.read_text()) if results.exists() else {})

    def _is_shareable(self) -> bool:
        same_spark = self.profile.get("spark") == QUICK_SPARK and self.profile.get("master") == "local[2]"
        return same_spark and self.profile["bootstrap_servers"] != "embedded" and set(self.profile) <= SHAREABLE

    def _run_alone(self, arguments: tuple[str, ...], timeout: float, program: str) -> tuple[int, str]:
        process = self.start(*arguments, program=program)
        try:
            output, _ = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return process.returncode, output

    def succeed(self, *arguments: str, timeout: float = 600, new_process: bool = False) -> Outcome:
        """Run a dbt command that must succeed."""
        outcome = self.run(*arguments, timeout=timeout, new_process=new_process)
        assert outcome.exit_code == 0, outcome.output
        return outcome
