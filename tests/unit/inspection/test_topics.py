"""`upsert-kafka topics` for a user who may not see everything. Kafka's answers are simulated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.errors import MissingRightError
from dbt.adapters.upsert_kafka.inspection import commands
from dbt.adapters.upsert_kafka.kafka_client import groups
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic


def model(name: str) -> Any:
    return SimpleNamespace(name=name, topic=SimpleNamespace(topic=f"shop.{name}", kafka=None))


class Admin:
    """Has two groups that read."""

    def list_groups(self) -> list[dict[str, str]]:
        return [{"group_id": group, "protocol_type": "consumer"} for group in ("billing", "secret")]


def test_topics_shows_the_rest_and_why_something_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def describe(_: Any, name: str) -> Topic:
        if name == "shop.hidden":
            raise MissingRightError("DESCRIBE", "topic", name)
        return Topic(name, partitions=2, cleanup_policy="compact", first={0: 0, 1: 0}, end={0: 5, 1: 3})

    def committed(_: Any, group: str, partitions: Any) -> dict[Any, Any]:
        asked.append((group, len(partitions)))
        if group == "secret":
            raise MissingRightError("DESCRIBE", "group", group)
        return {("shop.users", 0): SimpleNamespace(offset=4)}

    monkeypatch.setattr(commands.topics, "describe", describe)
    monkeypatch.setattr(groups, "committed", committed)
    monkeypatch.setattr(commands, "_record", lambda *_: None)
    admin: Any = Admin()
    project: Any = SimpleNamespace(environment=None)
    rows = {
        row["model"]: row
        for row in commands._summaries(project, [model("hidden"), model("orders"), model("users")], lambda _: admin)
    }
    assert asked == [("billing", 4), ("secret", 4)], "one request per group"
    assert (rows["users"]["records"], rows["users"]["lag"], rows["orders"]["lag"]) == (8, {"billing": 4}, {})
    assert rows["hidden"]["records"] is None and "DESCRIBE" in rows["hidden"]["note"]
    assert "without the lag of a group: " in rows["users"]["note"] and "secret" in rows["users"]["note"]
