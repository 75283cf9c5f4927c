"""Overhead of a dbt command compared with dbt-spark's session method: the start of `dbt run`, and the time per tiny model."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from benchmarks.measured import Figure, say, timed
from tests.dbt_project import Outcome, Project
from tests.services import Cluster

MODELS = 20
MANY = 500
SPARK, OURS = "dbt-spark's session, table", "upsert_kafka"
MOST_START, MOST_MODEL = 2.0, 0.3
"""Seconds that we may take longer than dbt-spark."""


def measure(arguments: argparse.Namespace, folder: Path) -> list[Figure]:
    """Measure starts and tiny models, with --huge also a project of many models."""
    rounds = max(2, arguments.rounds - 2)
    # Users do not have the JVM options of the tests.
    os.environ["SPARK_SUBMIT_OPTS"] = ""
    starts: dict[str, list[float]] = {SPARK: [], OURS: []}
    models: dict[int, dict[str, list[float]]] = {threads: {SPARK: [], OURS: []} for threads in (1, 4)}
    with Cluster() as cluster:
        for number in range(rounds + 1):
            projects = {
                SPARK: _project(folder / f"spark-{number}", cluster.bootstrap_servers, "table"),
                OURS: _project(folder / f"ours-{number}", cluster.bootstrap_servers, "upsert_kafka"),
            }
            for name, project in projects.items():
                # The first command fills dbt's caches and is not measured.
                _run(project, "--select", "model_0")
                seconds = timed(_run, project, "--select", "model_0")
                say(f"  start of dbt run {name:28} {seconds:6.2f} s")
                if number:
                    starts[name].append(seconds)
            for threads, by_name in models.items() if number else ():
                for name, project in projects.items():
                    outcome = _run(project, "--threads", str(threads), *(["--full-refresh"] if name == SPARK else []))
                    times = [result["execution_time"] for result in outcome.run_results["results"]]
                    # The first models of a session load classes that the others use.
                    by_name[name] += [seconds / threads for seconds in sorted(times)[: MODELS - threads]]
                    say(f"  {MODELS} models, {threads} threads {name:25} {sum(times) / MODELS:6.2f} s each")
        many = _many_models(folder / "many", cluster.bootstrap_servers) if arguments.huge else []
    found = _over("start of `dbt run` with one tiny model", starts, MOST_START) + many
    for threads, by_name in models.items():
        found += _over(
            f"one of {MODELS} tiny models, {threads} thread{'s'[: threads > 1]}, of the run's time", by_name, MOST_MODEL
        )
    return found


def _over(work: str, times: dict[str, list[float]], allowed: float) -> list[Figure]:
    base = Figure(work, SPARK, times[SPARK])
    goal = (base.median + allowed) / base.median
    return [
        Figure(work, name, values, base=base.median, goal=goal if name == OURS else None,
               note=f"at most {allowed} s more" if name == OURS else "")
        for name, values in times.items()
    ]  # fmt: skip


def _run(project: Project, *arguments: str) -> Outcome:
    return project.succeed("run", *arguments, new_process=True)


def _many_models(folder: Path, servers: str) -> list[Figure]:
    """The first load of a project of MANY models, and a run without changes."""
    project = _project(folder, servers, "upsert_kafka", MANY)
    found = []
    for work in ("first load", "unchanged"):
        seconds = timed(project.succeed, "run", "--threads", "4", timeout=1800, new_process=True)
        say(f"  {MANY} models, {work}: {seconds:6.1f} s")
        found.append(Figure(f"{MANY} tiny models, 4 threads, {work}", OURS, [seconds / MANY], "s per model, start included"))
    return found


def _project(folder: Path, servers: str, materialized: str, models: int = MODELS) -> Project:
    project = Project(folder, servers)
    spark: dict[str, Any] = {"type": "spark", "method": "session", "schema": "analytics", "host": "none", "threads": 4}
    project.profile = spark if materialized == "table" else {**project.profile, "spark": {}}
    project.save_profile()
    key = "" if materialized == "table" else ", unique_key='id'"
    config = f"{{{{ config(materialized='{materialized}'{key}) }}}}"
    return project.write({f"models/model_{i}.sql": f"{config} SELECT 1 AS id, {i} AS n" for i in range(models)})
