"""Random faults between runs: after every run the topic is exactly the SELECT, or the run was refused and wrote nothing.

`make test` takes the same steps each time. With UPSERT_KAFKA_NIGHTLY=1 they are new and many; UPSERT_KAFKA_SEED repeats them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import NewPartitions

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import TopicSettings
from dbt.adapters.upsert_kafka.publish import buckets, memory, pipeline, snapshots
from dbt.adapters.upsert_kafka.state.store import StateSettings, StateStore
from tests.property_tests import NIGHTLY
from tests.services import delete_topic
from tests.tables import Table, json_key, json_value

STEPS = 2000 if NIGHTLY else 10
SEED = int(os.environ.get("UPSERT_KAFKA_SEED", random.randrange(10**9) if NIGHTLY else 21))
CONFIG = {"cleanup.policy": "compact,delete"}
"""Kafka refuses DeleteRecords for a topic that is only compacted."""
OWNERSHIP = ("is owned by", "has no owner in the state topic")
"""The reasons for which a run may be refused here."""


class World:
    """A model, its topic, and what happens to it between runs."""

    def __init__(self, table: Table, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table, self.rng, self.monkeypatch = table, rng, monkeypatch
        self.kafka = KafkaSettings(table.broker)
        self.mine = table.owner
        table.options |= {"allow_empty": True, "topic_config": CONFIG}

    def exists(self) -> bool:
        with self.kafka.admin() as admin:
            return self.table.topic in admin.list_topics()

    def nothing(self) -> None:
        pass

    def topic_is_deleted(self) -> None:
        if self.exists():
            delete_topic(self.table.broker, self.table.topic)

    def topic_is_created_again(self) -> None:
        self.topic_is_deleted()
        with self.kafka.admin() as admin:
            topics.create(admin, self.table.topic, TopicSettings(self.rng.choice([1, 2, 3]), 1, CONFIG))

    def topic_is_truncated(self) -> None:
        if self.exists():
            with self.kafka.admin() as admin:
                admin.delete_records({TopicPartition(self.table.topic, p): end for p, end in self.table.end().items() if end})

    def partitions_are_added(self) -> None:
        if self.exists() and len(self.table.end()) < 6:
            with self.kafka.admin() as admin:
                admin.create_partitions({self.table.topic: NewPartitions(len(self.table.end()) + 1)})

    def another_writer_writes(self) -> None:
        if self.exists():
            key = self.rng.randrange(12)
            value = None if self.rng.random() < 0.2 else json_value((key, "another writer"))
            self.table.write_by_hand((json_key(key), value, self.rng.choice(sorted(self.table.end()))))

    def catalog_is_lost(self) -> None:
        spark, relation = self.table.spark, self.table.relation
        spark.sql(f"DROP VIEW IF EXISTS {relation.render()}")
        for helper in (relation.topic_table, relation.snapshot_table):
            spark.sql(f"DROP TABLE IF EXISTS {helper.render()}")
        self.table.published = False

    def snapshot_loses_its_files(self) -> None:
        snapshot = self.table.relation.snapshot_table
        if self.table.spark.catalog.tableExists(snapshot.render()):
            self.table.spark.sql(f"TRUNCATE TABLE {snapshot.render()}")

    def record_is_lost(self) -> None:
        with self.kafka.admin() as admin:
            store = StateStore(self.kafka, StateSettings())
            store.prepare(admin)
            store.forget(self.table.topic)

    def record_is_of_another_cluster(self) -> None:
        record = self.table.state_record()
        if record is not None:
            StateStore(self.kafka, StateSettings()).put(replace(record, cluster_id="another"))

    def environment_changes(self) -> None:
        self.table.owner = replace(self.mine, environment=self.rng.choice(["dev", "prod"]))

    def guarantee_changes(self) -> None:
        self.table.options["sink_delivery_guarantee"] = self.rng.choice(["at-least-once", "exactly-once"])

    def run_is_killed(self) -> None:
        def killed(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        target, name = self.rng.choice(
            [(pipeline.deliver, "deliver"), (pipeline.expose, "expose"), (memory.Memory, "_closing"), (memory.Memory, "claim")]
        )
        with self.monkeypatch.context() as patched:
            patched.setattr(target, name, killed)
            try:
                self.table.publish(self.rows())
            except (KeyboardInterrupt, GuardError):
                return

    def faults(self) -> list[Callable[[], None]]:
        return [
            *([self.nothing] * 4),
            *([self.another_writer_writes] * 3),
            self.topic_is_deleted,
            self.topic_is_created_again,
            self.topic_is_truncated,
            self.partitions_are_added,
            self.catalog_is_lost,
            self.snapshot_loses_its_files,
            self.record_is_lost,
            self.record_is_of_another_cluster,
            self.environment_changes,
            self.guarantee_changes,
            self.run_is_killed,
        ]

    def rows(self) -> list[tuple[int, str]]:
        keys = self.rng.sample(range(12), self.rng.randrange(13))
        return [(key, f"value {self.rng.randrange(3)}") for key in sorted(keys)]

    def contents(self) -> dict[bytes, list[bytes]]:
        """The values of each key that compaction would leave, in all partitions."""
        last: dict[tuple[int, bytes], bytes | None] = {}
        for record in self.table.records():
            last[record.partition, record.key or b""] = record.value
        found: dict[bytes, list[bytes]] = {}
        for (_, key), value in last.items():
            if value is not None:
                found.setdefault(key, []).append(value)
        return found


def test_topic_is_the_select_or_the_run_is_refused(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "FEWEST_ROWS", 0)
    monkeypatch.setattr(buckets, "KEYS_PER_BUCKET", 1)
    rng = random.Random(SEED)
    world = World(table, rng, monkeypatch)
    history: list[str] = [f"UPSERT_KAFKA_SEED={SEED}"]
    rows = world.rows()
    refused = 0
    for _ in range(STEPS):
        fault = rng.choice(world.faults())
        history.append(fault.__name__)
        fault()
        rows = rows if rng.random() < 0.3 else world.rows()
        history.append(f"run {rows}")
        refused += not _run_is_right(world, rows, history)
    print(f"{STEPS} runs, {refused} refused, seed {SEED}")
    assert 0 < refused < STEPS


def _run_is_right(world: World, rows: list[tuple[int, str]], history: list[str]) -> bool:
    """Run, and check the topic; whether the run was allowed."""
    table = world.table
    where = "\n".join(history[-12:])
    before: Any = table.end() if world.exists() else None
    try:
        table.publish(rows, full_refresh=world.rng.random() < 0.1)
    except GuardError as refusal:
        assert any(reason in str(refusal) for reason in OWNERSHIP), f"{refusal}\n{where}"
        assert (table.end() if world.exists() else None) == before, where
        if world.rng.random() < 0.7:
            table.owner = world.mine
            table.adopt()
            history.append("adopted")
        return False
    expected = {json_key(row[0]): [json_value(row)] for row in rows}
    assert world.contents() == expected, where
    assert table.view() == sorted(rows), where
    end = table.end()
    if world.rng.random() < 0.3:
        table.publish(rows)
        assert table.end() == end, f"an unchanged run wrote\n{where}"
    return True
