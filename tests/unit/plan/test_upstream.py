"""Which models of a plan depend on others that the plan changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.plan.run import changing_upstream


def node(materialized: str, *parents: str) -> Any:
    return SimpleNamespace(config=SimpleNamespace(materialized=materialized), depends_on=SimpleNamespace(nodes=list(parents)))


NODES = {
    "topic": node("upsert_kafka"),
    "source": node("kafka_source"),
    "view": node("view", "topic"),
    "table": node("table", "topic"),
    "direct": node("upsert_kafka", "topic"),
    "by_view": node("upsert_kafka", "view"),
    "by_table": node("upsert_kafka", "table"),
    "by_both": node("upsert_kafka", "table", "view"),
    "of_source": node("upsert_kafka", "source"),
    "other": node("upsert_kafka"),
}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("direct", (("topic",), True)),
        ("by_view", (("topic",), True)),
        ("by_table", (("topic",), False)),
        ("by_both", (("topic",), True)),
        ("of_source", (("source",), False)),
        ("other", ((), False)),
    ],
)
def test_upstream_that_changes(model: str, expected: tuple[tuple[str, ...], bool]) -> None:
    assert changing_upstream(model, NODES, {"topic": "topic", "source": "source"}) == expected
