"""Whole commands as people run them: a new process each time, from its start to its end, in turn with the alternatives.

The alternatives are the jobs in `hand_written`, dbt-spark's table of the same rows and tests on it, and Flink's job. Our commands
are also measured through the resident dbt (`upsert-kafka dbt`), which runs already. CPU seconds include the JVMs, not the broker.
The results so far are saved after each command. A command that fails is reported and left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
from kafka import KafkaAdminClient

from benchmarks import flink, report
from benchmarks.measured import Figure, Taken, figures, say
from benchmarks.report import HAND
from dbt.adapters.upsert_kafka.java import fetch_jars
from dbt.adapters.upsert_kafka.spark.settings import INSIDE_SPARK, kafka_jars
from tests.dbt_project import Project
from tests.services import Cluster

HERE = Path(__file__).parent
SECTION = "whole-commands"
OURS, SPARK, RESIDENT, FLINK = "dbt run", "dbt-spark, table", "upsert-kafka dbt", "Flink's job"
FIRST, UNCHANGED, CHANGED, TINY = "first load", "unchanged", "1 % changed", "a tiny model, unchanged"
CHECKED, FEWEST, MOST = 2, 1, 20
TESTS = (CHECKED, FEWEST, 5, MOST)
"""How many. The hand-written check does what the tests of `CHECKED` do; the others tell the cost of each further test."""
SMALL = (10_000, 100_000)
GOALS = {
    FIRST: {OURS: 1.4, RESIDENT: 0.8},
    UNCHANGED: {OURS: 1.0, RESIDENT: 0.25},
    CHANGED: {OURS: 1.3, RESIDENT: 0.6},
    f"{CHECKED} tests": {OURS: 0.5},
}
FURTHER_GOAL = 1.0
GOALS_ROWS = 1_000_000
Times = dict[str, dict[str, list[Taken]]]
"""By work and contender."""
Measured = tuple[str, str, Taken]
"""Work, contender and what it took."""


class CommandError(Exception):
    """A measured command has failed; its output."""


def measure(arguments: argparse.Namespace, folder: Path) -> list[Figure]:
    sizes = sorted(arguments.sizes or [*SMALL, arguments.rows], reverse=True)
    flink.environment()  # installs it, which is not part of a command
    found: list[Figure] = []
    with Cluster() as cluster:
        bench = Bench(folder, cluster.bootstrap_servers)
        for rows in sizes:
            is_largest = rows == sizes[0]
            rounds = arguments.command_rounds if is_largest else 1
            bench.hand_written("generate", str(folder), str(rows))
            times: Times = {}
            for number in range(rounds):
                say(f"{rows:,} rows, round {number + 1} of {rounds}")
                for work, contender, taken in bench.round(rows, number, is_largest):
                    say(f"  {work:12} {contender:20} {taken.clock:7.1f} s, {taken.processor:6.1f} CPU seconds")
                    times.setdefault(work, {}).setdefault(contender, []).append(taken)
                    report.add(SECTION, [*found, *_figures(times, rows)], progress=f"interrupted at {rows:,} rows, {work}")
            found += _figures(times, rows)
    if bench.failures:
        say(f"{len(bench.failures)} commands failed: {', '.join(bench.failures)}")
    return found


def _figures(times: Times, rows: int) -> list[Figure]:
    found = []
    for work, by_contender in times.items():
        base = next(name for name in (HAND, SPARK, OURS, *by_contender) if name in by_contender)
        goals = GOALS.get(work, {}) if base == HAND and rows >= GOALS_ROWS else {}
        found += _compared(f"{work}, {rows:,} rows", by_contender, base, goals)
    further = _further_test(times)
    if SPARK in further:
        found += _compared(f"each further test, {rows:,} rows", further, SPARK, {OURS: FURTHER_GOAL, RESIDENT: FURTHER_GOAL})
    return found


def _compared(work: str, by_contender: dict[str, list[Taken]], base: str, goals: dict[str, float]) -> list[Figure]:
    """Figures of the clock, and of CPU seconds where they are known."""
    clock = {name: [one.clock for one in taken] for name, taken in by_contender.items()}
    processor = {name: [one.processor for one in taken] for name, taken in by_contender.items()}
    known = {name: values for name, values in processor.items() if not any(map(math.isnan, values))}
    found = figures(work, clock, base, goals)
    return found + (figures(f"{work}, CPU seconds", known, base, {}) if base in known else [])


def _further_test(times: Times) -> dict[str, list[Taken]]:
    """What one more test takes: the difference between the most and the fewest tests, by contender."""
    fewest, most = times.get(_tests_of(FEWEST), {}), times.get(_tests_of(MOST), {})
    return {
        name: [
            Taken(*((more - less) / (MOST - FEWEST) for less, more in zip(few, many, strict=True)))
            for few, many in zip(fewest[name], most[name], strict=False)
        ]
        for name in most
        if name in fewest
    }


def _tests_of(count: int) -> str:
    return f"{count} test{'s'[: count > 1]}"


class Bench:
    """The projects and processes of all contenders."""

    def __init__(self, folder: Path, servers: str) -> None:
        self._folder, self._servers = folder, servers
        self._jars = ",".join(map(str, fetch_jars("spark-kafka", kafka_jars(pyspark.__version__), INSIDE_SPARK)))
        self.failures: list[str] = []
        """Work and contender of each command that failed."""

    def hand_written(self, *arguments: str) -> Taken:
        return self._process([sys.executable, str(HERE / "hand_written.py"), self._jars, *arguments], self._folder)

    def round(self, rows: int, number: int, is_largest: bool) -> Iterator[Measured]:
        """Each work of each contender once. Works whose figure needs no spread are only in the first round."""
        topic = f"whole.{rows}.{number}"
        ours = self._project(f"ours-{rows}-{number}", "upsert_kafka", f"{topic}.ours")
        resident = self._project(f"resident-{rows}-{number}", "upsert_kafka", f"{topic}.resident")
        spark = self._project(f"spark-{rows}-{number}", "table", "")
        try:
            # Not measured: fills dbt's caches, as in a project that was used before, and starts the resident dbt.
            self._prepare(resident.program("run", "--select", "tiny"), resident)
            self._prepare(ours.command("run", "--select", "tiny"), ours)
            self._prepare(spark.command("parse"), spark)
            projects = {OURS: ours, RESIDENT: resident}
            if is_largest:
                for name, project in projects.items():
                    yield from self._dbt(TINY, name, project, "run", "--select", "tiny")
            yield from self._runs(rows, topic, {SPARK: spark, **projects}, is_largest)
            yield from self._test_runs(topic, {SPARK: spark, **projects}, is_largest, is_first=number == 0)
        finally:
            subprocess.run(resident.program("--stop"), cwd=resident.folder, env=_environment(resident), check=False)

    def _runs(self, rows: int, topic: str, projects: dict[str, WholeProject], is_largest: bool) -> Iterator[Measured]:
        first, changed = (str(self._folder / f"{name}-{rows}") for name in ("first", "changed"))
        for work, path in ((FIRST, first), (UNCHANGED, first), (CHANGED, changed)):
            own = f"{topic}.{work.split()[0]}"
            if is_largest:
                self._create(own)
                yield from self._try(work, HAND, partial(self.hand_written, "publish", self._servers, path, own))
            for name, project in projects.items():
                project.use(path)
                # dbt-spark writes the whole table, whatever has changed.
                if name != SPARK or work == FIRST or not is_largest:
                    yield from self._dbt(work, name, project, "run", "--select", "orders")
            if is_largest and work == FIRST:
                yield from self._try(FIRST, FLINK, partial(self._flink, rows, f"{topic}.flink"))

    def _test_runs(self, topic: str, projects: dict[str, WholeProject], is_largest: bool, is_first: bool) -> Iterator[Measured]:
        for count in TESTS if is_first and is_largest else (CHECKED,):
            if is_largest and count == CHECKED:
                yield from self._try(
                    _tests_of(count), HAND, partial(self.hand_written, "check", self._servers, f"{topic}.ours.orders")
                )
            for name, project in projects.items():
                yield from self._dbt(_tests_of(count), name, project, "test", "--select", f"tag:of_{count}")

    def _try(self, work: str, contender: str, run: Callable[[], Taken | None]) -> Iterator[Measured]:
        """Nothing if it fails: the other contenders go on."""
        try:
            taken = run()
        except CommandError as error:
            say(f"  {work} {contender} failed:\n{error}")
            self.failures.append(f"{work} {contender}")
            return
        if taken is not None:
            yield work, contender, taken

    def _dbt(self, work: str, contender: str, project: WholeProject, *arguments: str) -> Iterator[Measured]:
        def run() -> Taken:
            if contender != RESIDENT:
                return self.taken(project, project.command(*arguments))
            before = project.resident_seconds()
            taken = self.taken(project, project.program(*arguments))
            return Taken(taken.clock, taken.processor + project.resident_seconds() - before)

        yield from self._try(work, contender, run)

    def taken(self, project: Project, command: list[str]) -> Taken:
        """Run a command of a project."""
        return self._process(command, project.folder, _environment(project))

    def _flink(self, rows: int, topic: str) -> Taken | None:
        """A first load with the start of Flink's process; without the end of the process, and without CPU time."""
        self._create(topic)
        started = time.monotonic()
        with flink.job(self._servers) as job:
            if job is None:
                return None
            try:
                job.load(topic, rows, "at-least-once")
            except RuntimeError as error:
                raise CommandError(str(error)) from error
            return Taken(time.monotonic() - started, math.nan)

    def _create(self, topic: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self._servers)
        admin.create_topics({topic: {"num_partitions": 4, "replication_factor": 1}}, wait_for_metadata=True)
        admin.close()

    def _prepare(self, command: list[str], project: Project) -> None:
        # Not into a pipe, which a started resident would keep open.
        with open(project.folder / "prepare.log", "w") as log:
            subprocess.run(command, cwd=project.folder, env=_environment(project), check=True, stdout=log, stderr=log)

    def _process(self, command: list[str], folder: Path, environment: dict[str, str] | None = None) -> Taken:
        with tempfile.NamedTemporaryFile("r") as results:
            measured = [sys.executable, str(HERE / "process.py"), results.name, *command]
            done = subprocess.run(
                measured, cwd=folder, env=environment, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            if done.returncode != 0:
                raise CommandError(done.stdout)
            found = json.load(results)
        return Taken(found["seconds"], found["processor"])

    def _project(self, name: str, materialized: str, topic: str) -> WholeProject:
        project = WholeProject(self._folder / name, self._servers)
        spark: dict[str, Any] = {"type": "spark", "method": "session", "schema": "analytics", "host": "none", "threads": 4}
        project.profile = {**project.profile, "spark": {}, "master": "local[*]"} if topic else spark
        project.save_profile()
        selects = {"orders": f"SELECT * FROM parquet.`{project.folder}/rows`", "tiny": "SELECT 1 AS id, 'one' AS name"}
        for model, select in selects.items():
            options = f", unique_key='id', partitions=4, topic='{topic}.{model}'" if topic else ""
            project.write({f"models/{model}.sql": f"{{{{ config(materialized='{materialized}'{options}) }}}}\n{select}"})
        project.write(_tests())
        return project


class WholeProject(Project):
    """A project whose model `orders` reads one of the generated tables."""

    def use(self, path: str) -> None:
        rows = self.folder / "rows"
        rows.unlink(missing_ok=True)
        rows.symlink_to(path)

    def program(self, *arguments: str) -> list[str]:
        """The command of the resident dbt."""
        return [sys.executable, "-m", "dbt.adapters.upsert_kafka", "dbt", *arguments]

    def resident_seconds(self) -> float:
        """CPU seconds so far of the resident dbt, its children and its JVM."""
        status = subprocess.run(
            self.program("--status"), cwd=self.folder, env=_environment(self), text=True, capture_output=True, check=False
        ).stdout
        # The fields utime, stime, cutime and cstime; the name before them may have spaces.
        return sum(
            sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15])) / os.sysconf("SC_CLK_TCK")
            for process in re.findall(r"process (\d+)", status)
        )


def _environment(project: Project) -> dict[str, str]:
    # Users do not have the JVM options of the tests.
    return {**project.environment(), "SPARK_SUBMIT_OPTS": ""}


def _tests() -> dict[str, str]:
    """20 tests, `unique` and `not_null` on the key the first. Tags tell which run: `of_1`, `of_2`, `of_5`, `of_20`."""
    conditions = ["name IS NULL", "amount IS NULL", "city IS NULL", "day IS NULL", "share IS NULL"]
    conditions += ["day > 30", "day < 0", "amount < 0", "share < 0", "length(name) < 9", "name NOT LIKE 'name%'"]
    conditions += ["amount <> id * 7", "day <> id % 31", "city NOT LIKE 'city%'", "share < id / 8", "id < 0"]
    queries = [f"SELECT * FROM {{{{ ref('orders') }}}} WHERE {condition}" for condition in conditions]
    unique = "SELECT {0} FROM {{{{ ref('orders') }}}} WHERE {0} IS NOT NULL GROUP BY {0} HAVING count(*) > 1"
    queries = [unique.format("name"), *queries, unique.format("amount")]
    assert len(queries) + CHECKED == max(TESTS)
    of_key = [{test: {"config": {"tags": _tags(i)}}} for i, test in enumerate(("unique", "not_null"))]
    columns = [{"name": "id", "data_tests": of_key}]
    return {
        "models/schema.yml": json.dumps({"models": [{"name": "orders", "columns": columns}]}),
        **{
            f"tests/test_{i}.sql": f"{{{{ config(tags={_tags(i)}) }}}}\n{query}" for i, query in enumerate(queries, start=CHECKED)
        },
    }


def _tags(number: int) -> list[str]:
    """The commands that run a test."""
    return [f"of_{count}" for count in TESTS if number < count]
