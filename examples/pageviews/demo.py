"""The demo of `make demo`: a SELECT is published to a topic, its input changes, and only the changes are published.

Works on a copy in .demo, so that the example is not changed and the demo can be repeated. docs/recordings.py records it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from dbt.cli.main import dbtRunner
from rich.console import Console
from rich.text import Text

EXAMPLE = Path(__file__).resolve().parent
PROJECT = EXAMPLE.parents[1] / ".demo" / "pageviews"
SEED = PROJECT / "seeds" / "raw_pageviews.csv"
MODEL = "pageviews_per_region"

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    shutil.rmtree(PROJECT, ignore_errors=True)
    shutil.copytree(EXAMPLE, PROJECT, ignore=shutil.ignore_patterns("demo.py", "target", "logs", ".upsert_kafka", ".user.yml"))
    # For a few rows the optimizing compiler of the JVM takes more time than it saves.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    folder = os.path.relpath(PROJECT)
    os.chdir(PROJECT)
    heading("A SELECT becomes a topic of a real Kafka: page views per region (models/pageviews_per_region.sql)")
    # As in a second terminal. Without it each command would start and stop the broker.
    with subprocess.Popen([program("upsert-kafka"), "broker"], stdout=subprocess.PIPE, text=True) as broker:
        try:
            wait_for(broker)
            build()
            end = show_topic()
            heading("\nThe input changes: one more view in Asia, the first in Antarctica, the only one in Oceania is removed")
            SEED.write_text(changed(SEED.read_text()))
            build()
            show_topic("--from", end)
        finally:
            # SIGTERM, because the children of a background job of a shell ignore SIGINT.
            broker.terminate()
    dbt, own = (shlex.quote(os.path.relpath(program(name), PROJECT)) for name in ("dbt", "upsert-kafka"))
    heading(f"\nWritten to {folder}: the project, and in .upsert_kafka the topic. Change the seed or the model and run again:")
    console.print(f"  cd {shlex.quote(folder)}; {dbt} build; {own} topic {MODEL}")


def wait_for(broker: subprocess.Popen[str]) -> None:
    assert broker.stdout is not None
    if not broker.stdout.readline():
        sys.exit(broker.wait() or 1)


def changed(seed: str) -> str:
    lines = [line for line in seed.splitlines() if not line.endswith(",Oceania")]
    return "\n".join([*lines, "9,101,2026-11-02 08:05:00,Asia", "10,106,2026-11-02 08:05:30,Antarctica", ""])


def build() -> None:
    """Run `dbt build` in the project's folder and in this process, so that Spark starts once."""
    command("dbt build")
    done = dbtRunner().invoke(["build", "--profiles-dir", ".", "--log-level", "none", "--log-level-file", "debug"])
    if not done.success:
        failed = [result for result in getattr(done.result, "results", []) if result.status in ("error", "fail")]
        reason = "; ".join(str(result.message) for result in failed) or str(done.exception)
        sys.exit(f"dbt build failed: {reason}. Its log: {PROJECT / 'logs' / 'dbt.log'}")
    results: Any = done.result
    passed = sum(result.node.resource_type == "test" for result in results)
    console.print(f"  [dim]seed, view and {passed} tests passed[/]")
    [published] = [result for result in results if result.node.name == MODEL]
    console.print(f"  [green]{published.message}[/]")


def show_topic(*arguments: str) -> str:
    """Show the topic with a reader that uses neither dbt nor Spark; returns the offsets after the last records."""
    arguments = ("topic", MODEL, *arguments)
    command(f"upsert-kafka {' '.join(arguments)}")
    read = [program("upsert-kafka"), *arguments, "--profiles-dir", ".", "-o", "json"]
    done = subprocess.run(read, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    ends: dict[int, int] = {}
    for record in records:
        ends[record["partition"]] = max(ends.get(record["partition"], 0), record["offset"] + 1)
        value = Text("(tombstone)", style="red") if record["tombstone"] else Text(text(record["value"]), style="cyan")
        console.print("  ", text(record["key"]).ljust(34), value, sep="")
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(ends.items()))


def text(side: Any) -> str:
    return side if isinstance(side, str) else json.dumps(side, separators=(",", ":"))


def program(name: str) -> str:
    """The path of a console script of this Python."""
    return str(Path(sys.executable).parent / name)


def heading(title: str) -> None:
    console.print(title, style="bold")


def command(line: str) -> None:
    console.print(f"[yellow]$[/] {line}")


if __name__ == "__main__":
    main()
