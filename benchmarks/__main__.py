"""All benchmarks in one run: `make bench`, or `python -m benchmarks [--rows 1000000] [--rounds 5] [--huge] [--only …]`.

Contenders take turns, so that other load on the machine affects all of them. Only medians of the same run are compared.
The results are written to docs/performance: results.json, results.md and a chart.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import commands, encode, growth, jobs, plan, publishing, read, report, run_profile, streams, whole_commands
from benchmarks.measured import Figure

Benchmark = Callable[[argparse.Namespace, Path], list[Figure]]
SECTIONS: dict[str, Benchmark] = {
    "whole-commands": whole_commands.measure,
    "plan": plan.measure,
    "publishing": publishing.measure,
    "jobs": jobs.measure,
    "profile": run_profile.measure,
    "streams": streams.measure,
    "growth": growth.measure,
    "commands": commands.measure,
    "encode": encode.measure,
    "read": read.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table that the contenders publish")
    parser.add_argument("--rounds", type=int, default=5, help="measured runs of each contender, after one warm-up run")
    parser.add_argument("--sizes", type=int, nargs="+", help="rows of the tables of whole-commands")
    parser.add_argument("--command-rounds", type=int, default=3, help="rounds of whole-commands with its largest table")
    parser.add_argument("--rate", type=int, default=2_000, help="events per second of streams")
    parser.add_argument("--interval", type=int, default=1_000, help="milliseconds between two batches of streams")
    parser.add_argument("--warm", type=float, default=120, help="seconds for which each stream runs before it is measured")
    parser.add_argument("--seconds", type=float, default=120, help="for which the latency of streams is measured")
    parser.add_argument(
        "--sustain", type=int, nargs="*", default=[10_000, 20_000, 40_000, 80_000], help="rates that are offered to each stream"
    )
    parser.add_argument("--sustain-seconds", type=float, default=30, help="for which each of these rates is offered")
    parser.add_argument("--minutes", type=float, default=0, help="for which the memory of each stream is sampled")
    parser.add_argument("--contenders", type=int, default=None, help="measure only the first contenders of streams")
    parser.add_argument("--huge", action="store_true", help="measure growth up to ten million rows")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=SECTIONS,
        default=list(SECTIONS),
        help="measure these sections; the others keep their results",
    )
    arguments = parser.parse_args()
    try:
        for section in arguments.only:
            with tempfile.TemporaryDirectory(prefix="upsert-kafka-bench-") as folder:
                report.add(section, SECTIONS[section](arguments, Path(folder)))
    finally:
        # Also what was measured before an error or Ctrl-C.
        report.write(list(SECTIONS))


if __name__ == "__main__":
    main()
