"""`upsert-kafka stream` as a process, with a project that counts the events of each region."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Self

from tests.dbt_project import Project
from tests.functional.topic_writer import Message, write
from tests.services import read_topic

PER_REGION = """
{{ config(materialized='upsert_kafka', unique_key='region', trigger='continuous', trigger_interval='500 ms',
          topic=var('views') ~ '_per_region', sink_delivery_guarantee='exactly-once') }}
select region, count(*) as pv, {{ count_distinct('user_id') }} as uv from {{ stream(ref('views')) }} group by region"""
FILES = {
    "models/views.sql": "{{ config(materialized='kafka_source', topic=var('views')) }}\nselect * from {{ kafka_topic() }}",
    "models/per_region.sql": PER_REGION,
    "models/schema.yml": """
models:
  - {name: views, columns: [{name: user_id, data_type: bigint}, {name: region, data_type: string}]}
  - {name: per_region, columns: [{name: region, data_tests: [unique, not_null]}]}
""",
}
PATIENCE = 180.0
Event = tuple[int, str]


def send(broker: str, topic: str, events: Iterable[Event]) -> None:
    """Append events (user_id, region)."""
    write(broker, topic, [Message({"user_id": u, "region": r}, partition=i % 2) for i, (u, r) in enumerate(events)], 2)


def per_region(broker: str, topic: str) -> dict[str, Any]:
    """The last value of each region, read by an independent client with read_committed."""
    last = {record.key: record.value for record in read_topic(broker, f"{topic}_per_region")}
    rows = [json.loads(value) for value in last.values() if value is not None]
    # Some tests need large messages.
    return {row["region"]: {name: row[name] for name in row if name != "filler"} for row in rows}


def counted(events: Iterable[Event]) -> dict[str, Any]:
    """What the model has to publish for the events."""
    pairs = list(events)
    counts, users = Counter(region for _, region in pairs), Counter(region for _, region in set(pairs))
    return {region: {"region": region, "pv": counts[region], "uv": users[region]} for region in counts}


class StreamProcess:
    """A running command. Its output is read from files, so that it never waits for a reader.

    Args:
        own_group: whether `interrupt` is used.
    """

    def __init__(self, project: Project, topic: str, *arguments: str, own_group: bool = False) -> None:
        self.topic = topic
        folder = str(project.folder)
        number = len(list(project.folder.glob("stream-*.out")))
        self._stdout, self._stderr = (project.folder / f"stream-{number}.{name}" for name in ("out", "err"))
        command = [sys.executable, "-m", "dbt.adapters.upsert_kafka.cli", "stream", *arguments]
        command += ["--vars", json.dumps({"views": topic}), "--project-dir", folder, "--profiles-dir", folder]
        with self._stdout.open("w") as out, self._stderr.open("w") as err:
            self.process = subprocess.Popen(
                command, cwd=folder, env=project.environment(), text=True, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=own_group,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def interrupt(self) -> None:
        """Send Ctrl-C as a terminal does: to all processes of the group, with Spark's JVM."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait_for(self, broker: str, events: Iterable[Event]) -> None:
        """Wait until the topic has the result of the events."""
        expected, until = counted(events), time.monotonic() + PATIENCE
        while time.monotonic() < until:
            assert self.process.poll() is None, self.output()
            try:
                if per_region(broker, self.topic) == expected:
                    return
            except AssertionError:  # the topic does not exist yet
                time.sleep(0.5)
            time.sleep(0.2)
        raise AssertionError(f"{per_region(broker, self.topic)} is not {expected}\n{self.output()}")

    def wait_for_line(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until a JSON line fulfils a condition."""
        until = time.monotonic() + PATIENCE
        while not any(condition(line) for line in self.lines()):
            assert self.process.poll() is None and time.monotonic() < until, self.output()
            time.sleep(0.2)

    def url(self, path: str) -> str:
        found = re.search(r"http://localhost:(\d+)/metrics", self.output())
        assert found is not None, self.output()
        return f"http://localhost:{found[1]}{path}"

    def lines(self) -> list[dict[str, Any]]:
        """The JSON lines."""
        # The last line may not be complete yet.
        return [json.loads(line) for line in self._stdout.read_text().split("\n")[:-1] if line.startswith('{"time"')]

    def output(self) -> str:
        return self._stdout.read_text() + self._stderr.read_text()
