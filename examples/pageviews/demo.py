"""The demo of `make demo`: a model is published to a topic, its input changes, and only the changes are published.

Works on a copy in .demo, so that the example is not changed and the demo can be repeated.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from dbt.cli.main import dbtRunner

EXAMPLE = Path(__file__).resolve().parent
PROJECT = EXAMPLE.parents[1] / ".demo" / "pageviews"
SEED = PROJECT / "seeds" / "raw_pageviews.csv"
TOPIC = "analytics.pageviews_per_region"


def main() -> None:
    shutil.rmtree(PROJECT, ignore_errors=True)
    shutil.copytree(EXAMPLE, PROJECT, ignore=shutil.ignore_patterns("demo.py", "target", "logs", ".upsert_kafka", ".user.yml"))
    # For a few rows the optimizing compiler of the JVM takes more time than it saves.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

    folder = os.path.relpath(PROJECT)
    os.chdir(PROJECT)
    print_heading("1. A SELECT becomes a topic", "models/pageviews_per_region.sql:")
    print(indented((PROJECT / "models" / "pageviews_per_region.sql").read_text()))
    # As in a second terminal. Without it each dbt command would start and stop the broker.
    with subprocess.Popen([program("upsert-kafka"), "broker"], stdout=subprocess.PIPE, text=True) as broker:
        try:
            address = wait_for(broker)
            dbt("seed")
            dbt("run")
            dbt("test")

            print_heading("2. What Kafka clients read", "The key is unique_key, the value is the whole row.")
            end = show_topic()

            print_heading(
                "3. The input changes", "A new view in Asia, the first one in Antarctica, and the only one in Oceania is removed."
            )
            SEED.write_text(changed(SEED.read_text()))
            dbt("build")

            print_heading(
                "4. Only the difference was written", "One changed row, one new row, and a tombstone for the removed row."
            )
            show_topic("--from", end)
        finally:
            # SIGTERM, because the children of a background job of a shell ignore SIGINT.
            broker.terminate()
    print_next_steps(folder, address)


def wait_for(broker: subprocess.Popen[str]) -> str:
    assert broker.stdout is not None
    line = broker.stdout.readline()
    if not line:
        sys.exit(broker.wait() or 1)
    print(f"$ upsert-kafka broker\n{indented(line)}", flush=True)
    return line.split(" at ")[1].split()[0]


def changed(seed: str) -> str:
    lines = [line for line in seed.splitlines() if not line.endswith(",Oceania")]
    return "\n".join([*lines, "9,101,2026-11-02 08:05:00,Asia", "10,106,2026-11-02 08:05:30,Antarctica", ""])


def dbt(*arguments: str) -> None:
    """Run a dbt command in the project's folder and in this process, so that Spark starts once."""
    print(f"$ dbt {' '.join(arguments)}", flush=True)
    done = dbtRunner().invoke([*arguments, "--profiles-dir", ".", "--use-colors" if sys.stdout.isatty() else "--no-use-colors"])
    print(flush=True)
    if not done.success:
        sys.exit(f"dbt {arguments[0]} failed; its log: {PROJECT / 'logs' / 'dbt.log'}")


def show_topic(*arguments: str) -> str:
    """Show the topic with a reader that uses neither dbt nor Spark; returns the offsets after the last records."""
    arguments = ("topic", TOPIC, *arguments)
    print(f"$ upsert-kafka {' '.join(arguments)}", flush=True)
    done = subprocess.run([program("upsert-kafka"), *arguments], check=False, stdout=subprocess.PIPE, text=True)
    print(indented(done.stdout), flush=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return done.stdout.split("--from ")[-1].strip()


def program(name: str) -> str:
    """The path of a console script of this Python."""
    return str(Path(sys.executable).parent / name)


def print_heading(title: str, text: str = "") -> None:
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else ("", "")
    print(f"\n{bold}{title}{plain}\n{text}\n" if text else f"\n{bold}{title}{plain}\n", flush=True)


def indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.rstrip().splitlines())


def print_next_steps(folder: str, address: str) -> None:
    dbt_command, own_command = (shlex.quote(os.path.relpath(program(name), PROJECT)) for name in ("dbt", "upsert-kafka"))
    print_heading("What to try next")
    print(f"""\
  cd {shlex.quote(folder)}
  Run it again: nothing is written. Change seeds/raw_pageviews.csv or the model, and only the changes are written:
    {dbt_command} build --profiles-dir .
    {own_command} topic {TOPIC}
  Keep the broker running in another terminal (it was at {address}) and read the topic with kcat or your application:
    {own_command} broker
  To use your own cluster, set bootstrap_servers in profiles.yml to host:port,host:port.
  All options of a model: docs/options.md
""")


if __name__ == "__main__":
    main()
