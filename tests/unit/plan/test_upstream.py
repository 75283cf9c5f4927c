"""Which models of a plan depend on others that the plan changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.plan.run import Failure
from dbt.adapters.upsert_kafka.plan.upstream import Unpublished, changing_upstream


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


def named(name: str, materialized: str, *parents: str) -> Any:
    return SimpleNamespace(**vars(node(materialized, *parents)), name=name, schema="S", alias=name)


PLANNED = {
    "users": named("users", "upsert_kafka"),
    "names": named("names", "view", "users"),
    "copy": named("copy", "upsert_kafka", "users"),
    "by_view": named("by_view", "upsert_kafka", "names"),
    "third": named("third", "upsert_kafka", "copy", "by_view"),
}
NOT_FOUND, SKIPPED = Failure("not found"), Failure("skipped", is_skipped=True)


def test_models_that_read_what_does_not_exist_yet() -> None:
    failures = {"copy": NOT_FOUND, "by_view": NOT_FOUND, "third": SKIPPED}
    missing = {"copy": ("s", "users"), "by_view": ("s", "names")}
    found = Unpublished(PLANNED, failures, missing, {"users": "users"}).reasons()
    assert found["copy"].startswith("can't be planned yet: reads users, ")
    assert found["by_view"].startswith("can't be planned yet: reads names, which is built from users, ")
    assert found["third"].startswith("can't be planned yet: depends on by_view, copy, ")


def test_other_failures_stay_failures() -> None:
    failures = {"copy": NOT_FOUND, "by_view": Failure("syntax error"), "third": SKIPPED}
    missing = {"copy": ("s", "users")}
    first = Unpublished(PLANNED, failures, missing, {"users": "users"})
    assert list(first.reasons()) == ["copy"], "by_view failed for another reason, and third depends on it"
    assert first.failed_above("third") == ["by_view", "copy"]
    # `apply` publishes no other model, so a relation that is missing has to be built by the user.
    assert Unpublished(PLANNED, failures, missing, {}).reasons() == {}
