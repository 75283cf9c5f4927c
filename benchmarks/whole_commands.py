"""Whole commands as people run them: a new process each time, from its start to its end, in turn with the alternatives.

The alternatives are the jobs in `hand_written`, dbt-spark's table of the same rows and tests on it, and Flink's job. With the
resident dbt (`upsert-kafka dbt`), the same commands are also measured through it. CPU seconds include the JVMs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from kafka import KafkaAdminClient

from benchmarks import flink
from benchmarks.measured import Figure, Taken, figures, say
from dbt.adapters.upsert_kafka.java import fetch_jars
from dbt.adapters.upsert_kafka.spark.settings import INSIDE_SPARK, kafka_jars
from tests.dbt_project import Project
from tests.services import Cluster

HERE = Path(__file__).parent
HAND, OURS, SPARK, RESIDENT, FLINK = "hand-written job", "dbt run", "dbt-spark, table", "upsert-kafka dbt", "Flink's job"
FIRST, UNCHANGED, CHANGED = "first load", "unchanged", "1 % changed"
TESTS = (1, 5, 20)
SMALL = (10_000, 100_000)
GOALS = {
    FIRST: {OURS: 1.4, RESIDENT: 0.8},
    UNCHANGED: {OURS: 1.0, RESIDENT: 0.25},
    CHANGED: {OURS: 1.3, RESIDENT: 0.6},
}
Times = dict[str, dict[str, list[Taken]]]
"""By work and contender."""


def measure(arguments: argparse.Namespace, folder: Path) -> list[Figure]:
    sizes = arguments.sizes or [*SMALL, arguments.rows]
    rounds = max(1, arguments.rounds - 2)
    found: list[Figure] = []
    with Cluster() as cluster:
        bench = Bench(folder, cluster.bootstrap_servers)
        for rows in sizes:
            bench.hand_written("generate", str(folder), str(rows))
            times: Times = {}
            for number in range(rounds):
                say(f"{rows:,} rows, round {number + 1} of {rounds}")
                for work, contender, taken in bench.round(rows, number, is_largest=rows == max(sizes)):
                    say(f"  {work:12} {contender:20} {taken.clock:7.1f} s, {taken.processor:6.1f} CPU seconds")
                    times.setdefault(work, {}).setdefault(contender, []).append(taken)
            found += _figures(times, rows)
    return found


def _figures(times: Times, rows: int) -> list[Figure]:
    found = []
    for work, by_contender in times.items():
        base = next(name for name in (HAND, SPARK, OURS) if name in by_contender)
        for label, pick in {"": 0, ", CPU seconds": 1}.items():
            values = {name: [one[pick] for one in taken] for name, taken in by_contender.items()}
            goals = GOALS.get(work, {}) if base == HAND and not label else {}
            found += figures(f"{work}, {rows:,} rows{label}", values, base, goals)
    return found


class Bench:
    """The projects and processes of all contenders."""

    def __init__(self, folder: Path, servers: str) -> None:
        self._folder, self._servers = folder, servers
        self._jars = ",".join(map(str, fetch_jars("spark-kafka", kafka_jars(pyspark.__version__), INSIDE_SPARK)))
        self._has_resident = importlib.util.find_spec("dbt.adapters.upsert_kafka.resident") is not None

    def hand_written(self, *arguments: str) -> Taken:
        return self._process([sys.executable, str(HERE / "hand_written.py"), self._jars, *arguments], self._folder)

    def round(self, rows: int, number: int, is_largest: bool) -> Iterator[tuple[str, str, Taken]]:
        """Each work of each contender once."""
        first, changed = (str(self._folder / f"{name}-{rows}") for name in ("first", "changed"))
        topic = f"whole.{rows}.{number}"
        ours = self._project(f"ours-{rows}-{number}", "upsert_kafka", f"{topic}.ours")
        spark = self._project(f"spark-{rows}-{number}", "table", "")
        contenders = {OURS: ours}
        if self._has_resident:
            contenders[RESIDENT] = self._project(f"resident-{rows}-{number}", "upsert_kafka", f"{topic}.resident")
        try:
            for work, path in ((FIRST, first), (UNCHANGED, first), (CHANGED, changed)):
                if is_largest:
                    self._create(f"{topic}.{work[:3].strip()}")
                    yield work, HAND, self.hand_written("publish", self._servers, path, f"{topic}.{work[:3].strip()}")
                yield work, SPARK, self._dbt(SPARK, spark, path, "run")
                for name, project in contenders.items():
                    yield work, name, self._dbt(name, project, path, "run")
            for count in TESTS if is_largest else (TESTS[0],):
                work = f"{count} test{'s'[: count > 1]}"
                if is_largest:
                    yield work, HAND, self.hand_written("check", self._servers, f"{topic}.ours")
                for name, project in {SPARK: spark, **contenders}.items():
                    yield work, name, self._dbt(name, project, changed, "test", "--select", f"tag:of_{count}")
            if is_largest:
                yield from self._flink(rows, f"{topic}.flink")
        finally:
            if RESIDENT in contenders:
                command = [sys.executable, "-m", "dbt.adapters.upsert_kafka", "dbt", "--stop"]
                subprocess.run(command, cwd=contenders[RESIDENT].folder, env=_environment(ours), check=False)

    def _flink(self, rows: int, topic: str) -> Iterator[tuple[str, str, Taken]]:
        """A first load with the start of Flink's process; without the end of the process, and without CPU time."""
        self._create(topic)
        started = time.monotonic()
        with flink.job(self._servers) as job:
            if job is not None:
                job.load(topic, rows, "at-least-once")
                yield FIRST, FLINK, Taken(time.monotonic() - started, float("nan"))

    def _create(self, topic: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self._servers)
        admin.create_topics({topic: {"num_partitions": 4, "replication_factor": 1}}, wait_for_metadata=True)
        admin.close()

    def _dbt(self, contender: str, project: Project, path: str, *arguments: str) -> Taken:
        rows = project.folder / "rows"
        rows.unlink(missing_ok=True)
        rows.symlink_to(path)
        command = project.command(*arguments)
        if contender == RESIDENT:
            command = [sys.executable, "-m", "dbt.adapters.upsert_kafka", "dbt", *command[3:]]
        return self._process(command, project.folder, _environment(project))

    def _process(self, command: list[str], folder: Path, environment: dict[str, str] | None = None) -> Taken:
        with tempfile.NamedTemporaryFile("r") as results:
            measured = [sys.executable, str(HERE / "process.py"), results.name, *command]
            done = subprocess.run(
                measured, cwd=folder, env=environment, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            assert done.returncode == 0, done.stdout
            found = json.load(results)
        return Taken(found["seconds"], found["processor"])

    def _project(self, name: str, materialized: str, topic: str) -> Project:
        project = Project(self._folder / name, self._servers)
        spark: dict[str, Any] = {"type": "spark", "method": "session", "schema": "analytics", "host": "none", "threads": 4}
        project.profile = {**project.profile, "spark": {}, "master": "local[*]"} if topic else spark
        project.save_profile()
        config = f"materialized='{materialized}'" + (f", unique_key='id', topic='{topic}', partitions=4" if topic else "")
        model = f"{{{{ config({config}) }}}}\nSELECT * FROM parquet.`{project.folder}/rows`"
        project.write({"models/orders.sql": model, **_tests()})
        # Not measured: it fills dbt's caches, as in a project that was used before.
        subprocess.run(project.command("parse"), cwd=project.folder, env=_environment(project), check=True, capture_output=True)
        return project


def _environment(project: Project) -> dict[str, str]:
    # Users do not have the JVM options of the tests.
    return {**project.environment(), "SPARK_SUBMIT_OPTS": ""}


def _tests() -> dict[str, str]:
    """20 tests. Tags tell which of them run: `of_1`, `of_5`, `of_20`."""
    conditions = ["id IS NULL", "name IS NULL", "amount IS NULL", "city IS NULL", "day IS NULL", "share IS NULL"]
    conditions += ["day > 30", "day < 0", "amount < 0", "share < 0", "length(name) < 9", "name NOT LIKE 'name%'"]
    conditions += ["amount <> id * 7", "day <> id % 31", "city NOT LIKE 'city%'", "share < id / 8", "id < 0"]
    queries = [f"SELECT * FROM {{{{ ref('orders') }}}} WHERE {condition}" for condition in conditions]
    unique = "SELECT {0} FROM {{{{ ref('orders') }}}} WHERE {0} IS NOT NULL GROUP BY {0} HAVING count(*) > 1"
    queries = [unique.format("id"), queries[0], unique.format("name"), *queries[1:], unique.format("amount")]
    assert len(queries) == max(TESTS)
    return {
        f"tests/test_{i}.sql": f"{{{{ config(tags={[f'of_{count}' for count in TESTS if i < count]}) }}}}\n{query}"
        for i, query in enumerate(queries)
    }
