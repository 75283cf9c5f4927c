"""A stream that is killed with -9 at random moments while events flow: the topic equals a batch over the same events."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.dbt_project import Project
from tests.functional.topic_writer import Message, write
from tests.services import read_topic

FILES = {
    "models/views.sql": "{{ config(materialized='kafka_source', topic=var('views')) }}\nselect * from {{ kafka_topic() }}",
    "models/per_region.sql": """
{{ config(materialized='upsert_kafka', unique_key='region', trigger='available-now', topic=var('views') ~ '_per_region',
          sink_delivery_guarantee='exactly-once') }}
select region, count(*) as pv, {{ count_distinct('user_id') }} as uv from {{ stream(ref('views')) }} group by region""",
    "models/schema.yml": """
models:
  - {name: views, columns: [{name: user_id, data_type: bigint}, {name: region, data_type: string}]}
""",
}
STATE = "dbt-upsert-kafka.state"


class Generator(threading.Thread):
    """Writes events until it is stopped."""

    def __init__(self, broker: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.broker, self.topic = broker, topic
        self.stopped = threading.Event()
        self.events: list[tuple[int, str]] = []

    def run(self) -> None:
        while not self.stopped.wait(0.2):
            new = [(random.randrange(500), f"region {random.randrange(20)}") for _ in range(50)]
            messages = [Message({"user_id": u, "region": r}, partition=i % 2) for i, (u, r) in enumerate(new)]
            write(self.broker, self.topic, messages, 2)
            self.events += new


@pytest.mark.nightly
@pytest.mark.parametrize("kills", [5, 45], ids=["5", "45"])
def test_killed_stream_equals_a_batch_and_writes_no_batch_twice(
    dbt_project: Callable[..., Project], broker: str, topic_name: str, kills: int
) -> None:
    project = dbt_project(FILES)
    arguments = ("run", "--vars", json.dumps({"views": topic_name}))
    generator = Generator(broker, topic_name)
    generator.start()
    time.sleep(1)
    try:
        project.succeed(*arguments, new_process=True)
        for _ in range(kills):
            process = project.start(*arguments)
            try:
                process.wait(timeout=random.uniform(8, 40))
            except subprocess.TimeoutExpired:
                process.kill()
            process.communicate()
    finally:
        generator.stopped.set()
        generator.join()
    project.succeed(*arguments, new_process=True)

    counts = Counter(region for _, region in generator.events)
    users = {region: {u for u, r in generator.events if r == region} for region in counts}
    expected = {region: {"region": region, "pv": counts[region], "uv": len(users[region])} for region in counts}
    last = {record.key: json.loads(record.value) for record in read_topic(broker, f"{topic_name}_per_region") if record.value}
    assert {row["region"]: row for row in last.values()} == expected

    # The state topic is not compacted yet: a batch that was written twice has two records.
    records = [json.loads(r.value) for r in read_topic(broker, STATE) if r.key == f"{topic_name}_per_region".encode() and r.value]
    written = Counter((found["stream"]["query"], found["stream"]["batch"]) for found in records if found.get("stream"))
    assert set(written.values()) == {1}, written
