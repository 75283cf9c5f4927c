"""The demo of `make demo-stream`: page views per region appear in a topic while the page views flow, exactly once.

Works on a copy in .demo, as examples/pageviews/demo.py. Ends by itself: with exit code 0 if the topic equals the events.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from generate import create_topic, generate
from kafka import KafkaConsumer, TopicPartition
from rich.console import Console

EXAMPLE = Path(__file__).resolve().parent
PROJECT = EXAMPLE.parents[1] / ".demo" / "pageviews_stream"
RESULT = "analytics.pageviews_per_region"
SECONDS = float(os.environ.get("DEMO_SECONDS", "30"))
PER_SECOND = 200
PATIENCE = 300.0

console = Console(highlight=False, soft_wrap=True)
Rows = dict[str, dict[str, Any]]


class Events(threading.Thread):
    """Writes events from the moment it is started, and remembers them."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self.sent: list[tuple[str, int]] = []

    def run(self) -> None:
        generate(self._servers, SECONDS, PER_SECOND, lambda event: self.sent.append((event["user_region"], event["user_id"])))

    def result(self) -> Rows:
        """What the model has to publish."""
        views, users = Counter(region for region, _ in self.sent), Counter(region for region, _ in set(self.sent))
        return {region: {"user_region": region, "pv": views[region], "uv": users[region]} for region in views}


def main() -> None:
    shutil.rmtree(PROJECT, ignore_errors=True)
    ignored = ("*.py", "__pycache__", "target", "logs", ".upsert_kafka", ".user.yml")
    shutil.copytree(EXAMPLE, PROJECT, ignore=shutil.ignore_patterns(*ignored))
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC")
    os.chdir(PROJECT)
    console.print("Page views per region, as a stream (models/pageviews_per_region.sql)", style="bold")
    with subprocess.Popen([program("upsert-kafka"), "broker"], stdout=subprocess.PIPE, text=True) as broker:
        try:
            servers = address_of(broker)
            create_topic(servers)
            console.print("[yellow]$[/] upsert-kafka stream")
            with open("stream.log", "w") as log:
                command = [program("upsert-kafka"), "stream", "--profiles-dir", "."]
                stream = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                is_right = follow(servers, stream)
            finally:
                stream.send_signal(signal.SIGTERM)
                exit_code = stream.wait()
        finally:
            # SIGTERM, because the children of a background job of a shell ignore SIGINT.
            broker.terminate()
    if not is_right or exit_code:
        sys.exit(f"The topic does not equal the events. The log of the stream: {PROJECT / 'stream.log'}")
    console.print("The topic equals the events. Ctrl-C or SIGTERM ends a stream between two batches; the next start continues.")


def follow(servers: str, stream: subprocess.Popen[bytes]) -> bool:
    """Print the results as they appear, until they equal the events."""
    until = time.monotonic() + PATIENCE
    while not is_running(Path("stream.log")):
        if stream.poll() is not None or time.monotonic() > until:
            return False
        time.sleep(0.5)
    events = Events(servers)
    events.start()
    console.print(f"  [dim]{PER_SECOND} events per second for {SECONDS:.0f} s[/]")
    consumer = KafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest")
    consumer.assign([TopicPartition(RESULT, partition) for partition in consumer.partitions_for_topic(RESULT) or ()])
    consumer.seek_to_beginning()
    rows: Rows = {}
    until = time.monotonic() + SECONDS + PATIENCE
    try:
        while time.monotonic() < until and stream.poll() is None:
            new = [record for records in consumer.poll(500).values() for record in records]
            for record in new:
                row = json.loads(record.value)
                rows[row["user_region"]] = row
            if new:
                show(rows, len(events.sent))
            if not events.is_alive() and rows == events.result():
                return True
    finally:
        consumer.close()
    return False


def is_running(log: Path) -> bool:
    """Whether the stream has printed that it runs."""
    return '"status": "running"' in log.read_text()


def show(rows: Rows, sent: int) -> None:
    counts = "  ".join(f"{region} [cyan]{row['pv']}[/] [dim]({row['uv']} users)[/]" for region, row in sorted(rows.items()))
    console.print(f"  [dim]{sent:5} events:[/]  {counts}")


def address_of(broker: subprocess.Popen[str]) -> str:
    assert broker.stdout is not None
    line = broker.stdout.readline()
    if not line:
        sys.exit(broker.wait() or 1)
    return line.removeprefix("Kafka is up at ").split()[0]


def program(name: str) -> str:
    """The path of a console script of this Python."""
    return str(Path(sys.executable).parent / name)


if __name__ == "__main__":
    main()
