"""`upsert-kafka plan` beside the run that it plans: whole processes, in turn, for a table with 1 % changed rows.

Each round plans the change, publishes it, and the next round changes the rows back.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.measured import Figure, Taken, figures, say
from benchmarks.whole_commands import CHANGED, OURS, Bench
from tests.services import Cluster

PLAN = "upsert-kafka plan"


class PlanBench(Bench):
    """One project, whose rows are changed between the rounds."""

    def times(self, rows: int, rounds: int) -> dict[str, list[Taken]]:
        """The times of both commands."""
        self.hand_written("generate", str(self._folder), str(rows))
        first, changed = (str(self._folder / f"{name}-{rows}") for name in ("first", "changed"))
        project = self._project("plan", "upsert_kafka", "plan.orders")
        run = project.command("run", "--select", "orders")
        plan = project.command("plan", "--select", "orders", "-o", str(project.folder / "plan"), program="upsert-kafka")
        project.use(first)
        self.taken(project, run)
        found: dict[str, list[Taken]] = {OURS: [], PLAN: []}
        for number in range(rounds):
            project.use(first if number % 2 else changed)
            found[PLAN].append(self.taken(project, plan))
            found[OURS].append(self.taken(project, run))
            for name, taken in found.items():
                say(f"  {CHANGED:12} {name:20} {taken[-1].clock:7.1f} s, {taken[-1].processor:6.1f} CPU seconds")
        return found


def measure(arguments: argparse.Namespace, folder: Path) -> list[Figure]:
    rounds = max(1, arguments.rounds - 2)
    with Cluster() as cluster:
        times = PlanBench(folder, cluster.bootstrap_servers).times(arguments.rows, rounds)
    found = []
    for label, pick in {"": 0, ", CPU seconds": 1}.items():
        values = {name: [one[pick] for one in taken] for name, taken in times.items()}
        found += figures(f"plan, {CHANGED}, {arguments.rows:,} rows{label}", values, OURS, {})
    return found
