"""Where a cold `dbt run` of one tiny model spends its time: `python -m benchmarks.timeline [--draw] …`.

Runs dbt in a new process whose functions note when they begin and end (`benchmarks/noted`). Prints the steps and the CPU time of
the process and its children; `--draw` writes docs/performance/timeline.svg. Changes nothing in the measured package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.measured import say
from benchmarks.report import FOLDER, pyplot
from tests.dbt_project import Project
from tests.services import Cluster

NOTED = Path(__file__).parent / "noted"
MODEL = "{{ config(materialized='upsert_kafka', unique_key='id') }} SELECT 1 AS id, 'one' AS name"


class Step(NamedTuple):
    """When a step began and ended, in seconds from the start of the process."""

    name: str
    begin: float
    end: float
    thread: str


class Timeline(NamedTuple):
    """One command."""

    steps: list[Step]
    wall: float
    processor: float
    """CPU seconds of the process and all of its children, the JVMs included."""


def measure(project: Project, *arguments: str) -> Timeline:
    """Run a dbt command in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        notes, results = Path(folder) / "notes", Path(folder) / "results"
        environment = project.environment()
        path = os.pathsep.join([str(NOTED), environment["PYTHONPATH"]])
        # Not `-m`, so that the import of dbt is a step.
        dbt = [sys.executable, "-c", "from dbt.cli.main import cli; cli()", *project.command(*arguments)[3:]]
        started = time.time()
        subprocess.run(
            [sys.executable, "-S", str(Path(__file__).with_name("process.py")), str(results), *dbt],
            cwd=project.folder, stdout=subprocess.DEVNULL, check=True,
            env={**environment, "PYTHONPATH": path, "UPSERT_KAFKA_NOTES": str(notes), "SPARK_SUBMIT_OPTS": ""},
        )  # fmt: skip
        found = [json.loads(line) for line in notes.read_text().splitlines()]
        taken = json.loads(results.read_text())
    wall, processor = taken["seconds"], taken["processor"]
    steps = [Step(note["step"], note["begin"] - started, note["end"] - started, note["thread"]) for note in found]
    last = max((step.end for step in steps), default=0.0)
    steps = [*steps, Step("exit", last, wall, "MainThread")]
    return Timeline(sorted(steps, key=lambda step: (step.begin, -step.end)), wall, processor)


def show(timeline: Timeline) -> None:
    for step in timeline.steps:
        print(f"{step.begin:7.2f} {step.end:7.2f} {step.end - step.begin:6.2f} s  {step.name}  [{step.thread}]")
    print(f"whole command: {timeline.wall:.1f} s by the clock, {timeline.processor:.1f} CPU seconds")


def draw(timelines: dict[str, Timeline], file: Path) -> None:
    """One panel per timeline, one bar per step."""
    heights = [len(timeline.steps) for timeline in timelines.values()]
    size = (9, 0.24 * sum(heights) + 0.7 * len(heights))
    drawing, axes = pyplot().subplots(
        len(timelines), 1, figsize=size, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axis, (title, timeline) in zip(axes[:, 0], timelines.items(), strict=True):
        for place, step in enumerate(timeline.steps):
            colour = "#2a78b5" if step.thread == "MainThread" else "#e08a3c"
            axis.barh(-place, max(step.end - step.begin, 0.02), left=step.begin, color=colour, height=0.7)
            axis.text(step.end + 0.05, -place, f"{step.end - step.begin:.1f} s", va="center", fontsize=7)
        axis.set_yticks([-place for place in range(len(timeline.steps))], [step.name for step in timeline.steps], fontsize=7)
        heading = f"{title}: {timeline.wall:.1f} s by the clock, {timeline.processor:.1f} CPU seconds"
        axis.set_title(heading, loc="left", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1, 0].set_xlabel("seconds from the start of the process; orange: in other threads", fontsize=8)
    drawing.tight_layout()
    drawing.savefig(file, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.timeline", description=__doc__)
    parser.add_argument("--draw", action="store_true", help="write docs/performance/timeline.svg")
    parser.add_argument("--embedded", action="store_true", help="with the embedded broker, otherwise a broker that runs already")
    parser.add_argument("--command", nargs="+", default=["run"], help="the dbt command")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="upsert-kafka-timeline-") as folder, Cluster() as cluster:
        servers = "embedded" if arguments.embedded else cluster.bootstrap_servers
        project = Project(Path(folder), servers).write({"models/tiny.sql": MODEL})
        project.profile["spark"] = {}
        project.save_profile()
        project.succeed("run", new_process=True)  # creates the topic and fills dbt's caches
        project.write({"models/tiny.sql": MODEL.replace("one", "two")})
        load = os.getloadavg()[0]
        found = measure(project, *arguments.command)
    show(found)
    if arguments.draw:
        title = f"dbt {' '.join(arguments.command)} of one tiny model, {os.cpu_count()} cores, load {load:.1f}"
        draw({title: found}, FOLDER / "timeline.svg")
        say(f"wrote {FOLDER / 'timeline.svg'}")


if __name__ == "__main__":
    main()
