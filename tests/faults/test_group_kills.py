"""`kafka_source` -> exactly-once model, killed at random moments: every message is published once, and the group agrees.

Each command is dbt in a new process, and the project's local folder is deleted after each, as in a new container.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import TransactionalIdNotFoundError

from tests.dbt_project import Project
from tests.faults.scene import wait_for
from tests.faults.test_kills import kill
from tests.services import Cluster, end_offsets, read_topic

MESSAGES, PARTITIONS = 100_000, 3
FILES = {
    "models/events.sql": "{{ config(materialized='kafka_source', topic=var('events'), format='csv',"
    " properties={'group.id': var('events'), 'auto.offset.reset': 'earliest'}) }}\nselect n from {{ kafka_topic() }}",
    "models/events.yml": "models: [{name: events, columns: [{name: n, data_type: int}]}]",
    "models/counted.sql": "{{ config(materialized='kafka', format='csv', topic=var('events') ~ '_counted', partitions=3,"
    " sink_delivery_guarantee='exactly-once') }}\nselect n from {{ ref('events') }}",
}
SECONDS_OF_A_MODEL = 6.0


class Pipeline:
    """The project, its topics, and the messages that were written so far."""

    def __init__(self, broker: str, folder: Path, topic: str) -> None:
        self.broker, self.topic, self.counted, self.written = broker, topic, f"{topic}_counted", 0
        self.project = Project(folder, broker).write(FILES)
        self.project.write({"dbt_project.yml": f"name: shop\nprofile: shop\nvars: {{events: {topic}}}\n"})
        self.admin = KafkaAdminClient(bootstrap_servers=broker)
        self.admin.create_topics({topic: {"num_partitions": PARTITIONS, "replication_factor": 1}}, wait_for_metadata=True)

    def write(self, number: int) -> None:
        producer = KafkaProducer(bootstrap_servers=self.broker, acks="all", linger_ms=50, batch_size=1 << 18)
        for n in range(self.written, self.written + number):
            producer.send(self.topic, b"%d" % n, partition=n % PARTITIONS)
        producer.flush()
        producer.close()
        self.written += number

    def forget(self) -> None:
        """Delete what a container would not keep."""
        for name in (".upsert_kafka", "target", "logs", "spark-warehouse"):
            shutil.rmtree(self.project.folder / name, ignore_errors=True)

    def killed_run(self, moment: random.Random, inside_transaction: bool) -> str:
        """Start dbt and kill it: some time after the model has started, or after its first record was written.

        Returns:
            The state in which the kill left the transaction, or "ended" if the run was over before.
        """
        # The end of an earlier transaction adds a marker to each partition.
        before = self.in_topic() + PARTITIONS
        process = self.project.start("run")
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if "START sql kafka model" in line:
                    break
            if inside_transaction:
                wait_for(lambda: process.poll() is not None or self.in_topic() > before, "the first record of the run")
                time.sleep(moment.uniform(0, 0.5))
            else:
                time.sleep(moment.uniform(0, SECONDS_OF_A_MODEL))
            is_running = process.poll() is None
        finally:
            kill(process)
            self.forget()
        return self.transaction() if is_running else "ended"

    def run(self) -> None:
        outcome = self.project.run("run", new_process=True)
        assert outcome.exit_code == 0, outcome.output
        self.forget()

    def in_topic(self) -> int:
        """Records and transaction markers in the model's topic, open transactions included."""
        if self.counted not in self.admin.list_topics():
            return 0
        partitions = {TopicPartition(self.counted, p): OffsetSpec.LATEST for p in range(PARTITIONS)}
        return sum(found.offset for found in self.admin.list_partition_offsets(partitions).values())

    def transaction(self) -> str:
        transactional_id = f"dbt-upsert-kafka.{self.counted}"
        try:
            return self.admin.describe_transactions([transactional_id])[transactional_id].state.name
        except TransactionalIdNotFoundError:
            return "NONE"

    def committed(self) -> dict[int, int]:
        return {p.partition: at.offset for p, at in self.admin.list_group_offsets({self.topic: None})[self.topic].items()}

    def check(self) -> None:
        """What is published is what is in front of the group's offsets, each message once."""
        committed: dict[int, int] = self.committed()
        per_partition: Counter[int] = Counter()
        counts = Counter(int(record.value or b"") for record in read_topic(self.broker, self.counted))
        assert max(counts.values(), default=1) == 1, f"published more than once: {[n for n, c in counts.items() if c > 1][:10]}"
        for n in counts:
            per_partition[n % PARTITIONS] += 1
        assert {p: per_partition[p] for p in range(PARTITIONS)} == {p: committed.get(p, 0) for p in range(PARTITIONS)}


def publish_with_kills(pipeline: Pipeline, kills: int, seed: int) -> list[str]:
    moment, outcomes = random.Random(seed), []
    for number in range(kills):
        pipeline.write(MESSAGES // (kills + 1))
        outcomes.append(pipeline.killed_run(moment, inside_transaction=number % 3 != 2))
    pipeline.write(MESSAGES - pipeline.written)
    pipeline.run()
    pipeline.check()
    assert pipeline.committed() == end_offsets(pipeline.broker, pipeline.topic)
    assert sum(pipeline.committed().values()) == MESSAGES
    return outcomes


@pytest.mark.nightly
@pytest.mark.parametrize("kills", [100])
def test_every_message_is_published_once_whenever_the_run_is_killed(
    kills: int, fault_cluster: Cluster, topic_name: str, tmp_path: Path, finding: Callable[[str], None]
) -> None:
    seed = int(os.environ.get("UPSERT_KAFKA_KILL_SEED", random.randrange(1 << 32)))
    pipeline = Pipeline(fault_cluster.bootstrap_servers, tmp_path, topic_name)
    try:
        outcomes = publish_with_kills(pipeline, kills, seed)
    finally:
        pipeline.admin.close()
        finding(f"UPSERT_KAFKA_KILL_SEED={seed}")
    finding(f"{kills} kills: {dict(Counter(outcomes))}")
    assert set(outcomes) != {"ended"}, f"no run was killed, the seed was {seed}"
