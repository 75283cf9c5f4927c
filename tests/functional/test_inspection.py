"""`upsert-kafka topic`, `topics` and `describe` in a project: its profile, its models, its formats."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

from tests.dbt_project import Project

AVRO = """{{ config(materialized='upsert_kafka', unique_key='id', format='avro', headers={'source': "'shop'"}) }}
select 7 as id, 'ann' as name, cast(1.50 as decimal(10, 2)) as price, array('a', 'b') as tags,
  named_struct('city', 'Bern') as address, map('k', 1) as scores"""
REGISTERED = """{{ config(materialized='upsert_kafka', unique_key='id', value_format='avro-confluent') }}
select explode(sequence(1, 3)) as id, 'ann' as name"""
MODEL = """{{{{ config(materialized='upsert_kafka', unique_key='id') }}}} select explode(sequence(1, {rows})) as id"""
VERSIONS = """
models:
  - name: orders
    latest_version: 2
    versions: [{v: 1}, {v: 2}]
"""
CHANGES = """{{ config(materialized='kafka', unique_key='id', value_format='debezium-json') }}
select 1 as id, 'ann' as name, cast(10 as decimal(10, 2)) as price"""


def commit(broker: str, group: str, topic: str, offset: int) -> None:
    """Commit an offset of the topic's first partition, as a consumer of the group does."""
    consumer = KafkaConsumer(bootstrap_servers=broker, group_id=group)
    consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)})
    consumer.close()


def test_commands_of_a_project_with_versions(dbt_project: Callable[..., Project], broker: str, schema_name: str) -> None:
    models = {f"models/orders_v{v}.sql": MODEL.format(rows=v) for v in (1, 2)} | {"models/users.sql": MODEL.format(rows=3)}
    project = dbt_project({**models, "models/orders.yml": VERSIONS})

    def command(*arguments: str) -> list[dict[str, Any]]:
        outcome = project.run(*arguments, "-o", "json", program="upsert-kafka")
        assert outcome.exit_code == 0, outcome.output
        return [json.loads(line) for line in outcome.output.splitlines() if line.startswith("{")]

    with project.one_process():
        # The versions have one owner and topics of their own.
        assert "former topic" not in project.succeed("run", "--threads", "1").output
        group = f"{schema_name}.group"
        commit(broker, group, f"{schema_name}.users", 1)

        assert [row["key"] for row in command("topic", "orders")] == [{"id": 1}, {"id": 2}], "the latest version, as ref() has it"
        assert [row["key"] for row in command("topic", "orders.v1")] == [{"id": 1}]
        topics = {row["model"]: row for row in command("topics")}
        shown = {name: (row["topic"], row["records"], row["lag"], row["note"]) for name, row in topics.items()}
        assert shown == {
            "orders.v1": (f"{schema_name}.orders_v1", 1, {}, None),
            "orders.v2": (f"{schema_name}.orders_v2", 2, {}, None),
            "users": (f"{schema_name}.users", 3, {group: 2}, None),
        }
        [described] = command("describe", "orders")
        assert (described["model"], described["key"], described["owner"]) == ("orders.v2", "id", "shop.orders")

        for name in ("topic", "describe"):
            unknown = project.run(name, "usrs", program="upsert-kafka")
            assert unknown.exit_code == 1 and "Did you mean 'users'?" in unknown.output


@pytest.mark.nightly
def test_commands_use_the_project(dbt_project: Callable[..., Project], broker: str, registry: str, schema_name: str) -> None:
    models = {"models/orders.sql": AVRO, "models/users.sql": REGISTERED, "models/changes.sql": CHANGES}
    project = dbt_project(models, schema_registry={"url": registry})
    project.succeed("run", new_process=True)
    commit(broker, f"{schema_name}.group", f"{schema_name}.users", 1)

    def text(*arguments: str) -> str:
        here = ["--project-dir", str(project.folder), "--profiles-dir", str(project.folder), "--target", "dev"]
        program = [sys.executable, "-m", "dbt.adapters.upsert_kafka.cli"]
        done = subprocess.run(
            [*program, *arguments, *here],
            check=False, env=project.environment(), cwd="/", capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def command(*arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in text(*arguments, "-o", "json").splitlines()]

    [order] = command("topic", "orders")
    expected = {"id": 7, "name": "ann", "price": 1.5, "tags": ["a", "b"], "address": {"city": "Bern"}, "scores": {"k": 1}}
    assert (order["key"], order["value"], order["headers"]) == ({"id": 7}, expected, {"source": "shop"})

    [user] = command("topic", f"{schema_name}.users", "--key", "2")
    assert user["value"] == {"id": 2, "name": "ann"}
    # Numbers have the text that they have in the topic.
    assert '"after":{"id":1,"name":"ann","price":1E+1}' in text("topic", "changes")
    assert '"after": {"id": 1, "name": "ann", "price": 1E+1}' in text("topic", "changes", "-o", "json")

    found = {row["model"]: row for row in command("topics")}
    users = found["users"]
    assert (users["topic"], users["owner"], users["environment"]) == (f"{schema_name}.users", "shop.users", "dev")
    assert (users["records"], users["live_keys"], users["lag"]) == (3, 3, {f"{schema_name}.group": 2})

    [described] = command("describe", "orders")
    assert (described["key"], described["value_format"], described["cleanup_policy"]) == ("id", "avro", "compact")
    assert described["columns"].startswith("id int, name string, price decimal(10,2)")
