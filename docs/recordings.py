"""Writes the pictures of a terminal, from real output: `python docs/recordings.py demo` or `cli`.

demo.svg is the output of `make demo`. cli.svg shows progress, `upsert-kafka topics` and `upsert-kafka describe`. Run it after a
change of what these print.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 118, 40
ERASE_BELOW = "\x1b[J"
PROFILE = """shop:
  target: prod
  outputs:
    prod:
      type: upsert_kafka
      schema: shop
      bootstrap_servers: embedded
      threads: 2
      spark: {spark.driver.memory: 2g}
"""
MODEL = """{{{{ config(materialized='upsert_kafka', unique_key='{key}', partitions=4) }}}}
select id as {key}, {columns} from range({rows})"""
ORDERS = "cast(id % 1000 as int) as customer_id, id % 97 + {{ var('raise', 0) }} as amount, 'paid' as status"
CUSTOMERS = "concat('customer ', id) as name, sha2(cast(id + {{ var('raise', 0) }} as string), 256) as token"


def demo() -> None:
    shown = output_of([sys.executable, str(ROOT / "examples" / "pageviews" / "demo.py")], ROOT)
    write("demo", ["[yellow]$[/] make demo", Text.from_ansi(shown.rstrip())])


def cli() -> None:
    bin_folder = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "models").mkdir()
        (folder / "dbt_project.yml").write_text("name: shop\nprofile: shop\nflags: {send_anonymous_usage_stats: false}\n")
        (folder / "profiles.yml").write_text(PROFILE)
        (folder / "models/orders.sql").write_text(MODEL.format(key="order_id", columns=ORDERS, rows=800_000))
        (folder / "models/customers.sql").write_text(MODEL.format(key="customer_id", columns=CUSTOMERS, rows=400_000))
        broker = subprocess.Popen([bin_folder / "upsert-kafka", "broker"], cwd=folder, stdout=subprocess.PIPE, text=True)
        try:
            assert broker.stdout is not None
            address = re.search(r"127\.0\.0\.1:\d+", broker.stdout.readline())
            assert address is not None
            output_of([bin_folder / "dbt", "run"], folder)
            read_some(address[0])
            run = output_of([bin_folder / "dbt", "run", "--vars", "{raise: 1}"], folder)
            topics = output_of([bin_folder / "upsert-kafka", "topics"], folder)
            described = output_of([bin_folder / "upsert-kafka", "describe", "orders"], folder)
        finally:
            broker.terminate()
            broker.wait()
    shown: list[str | Text] = ["[yellow]$[/] dbt run    [dim]# while it runs[/]", Text.from_ansi(busiest(run))]
    shown += ["\n[yellow]$[/] upsert-kafka topics", Text.from_ansi(topics.rstrip())]
    write("cli", [*shown, "\n[yellow]$[/] upsert-kafka describe orders", Text.from_ansi(described.rstrip())])


def read_some(address: str) -> None:
    """A consumer group that has not read everything, so that it has a lag."""
    consumer = KafkaConsumer(bootstrap_servers=address, group_id="billing")
    consumer.commit({TopicPartition("shop.customers", partition): OffsetAndMetadata(150_000, "", -1) for partition in range(4)})
    consumer.close()


def busiest(output: str) -> str:
    """The screen with the most steps in progress, from dbt's first line about a model."""
    in_progress = r"(?<![\d,])([\d,]+) of (?!\1 )[\d,]+ rows"
    screen = max(screens(output), key=lambda one: (len(re.findall(in_progress, one)), one.count("rows/s")))
    lines = screen.split("\n")
    return "\n".join(lines[next(i for i, line in enumerate(lines) if " START " in line) :])


def screens(output: str) -> Iterator[str]:
    """What the terminal showed each time the lines of progress changed: dbt's lines, and those of progress below them."""
    above = ""
    for text in output.split(ERASE_BELOW):
        # Lines of progress end with the way back to their first one.
        drawn = re.fullmatch(r"(.*)\r(?:\x1b\[(\d+)A)?", text, re.DOTALL)
        if drawn is None:
            above += text
            continue
        lines = drawn[1].split("\n")
        first = len(lines) - 1 - int(drawn[2] or 0)
        above += "".join(f"{line}\n" for line in lines[:first])
        yield above + "\n".join(lines[first:])


def output_of(command: list[str | Path], folder: Path) -> str:
    """What a command writes to a terminal."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH), "FORCE_COLOR": "1"}
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = read_all(ours)
    if process.returncode != 0:
        sys.exit(f"{command}: {shown}")
    return shown.replace("\r\n", "\n")


def read_all(terminal: int) -> str:
    shown = b""
    try:
        while text := os.read(terminal, 65536):
            shown += text
    except OSError as error:
        # Linux reports the end of a pseudo-terminal as an error.
        if error.errno != errno.EIO:
            raise
    os.close(terminal)
    return shown.decode()


def write(name: str, shown: list[str | Text]) -> None:
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    # The picture cuts what is below the letters of its last line.
    for part in [*shown, ""]:
        console.print(part)
    svg = console.export_svg(title="dbt-upsert-kafka", unique_id=name)
    # Without the fonts that rich would let the reader's browser download.
    (ROOT / "docs" / f"{name}.svg").write_text(re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    {"demo": demo, "cli": cli}[sys.argv[1]]()
