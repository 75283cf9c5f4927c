"""Who consumes a source: models behind views, ephemeral models and tables count, tests and what is behind a topic don't."""

from __future__ import annotations

from typing import Any

import pytest

from dbt.adapters.upsert_kafka.source.consumers import consumers, names_of, sources


def node(unique_id: str, materialized: str, *parents: str) -> dict[str, Any]:
    kind, _, *name = unique_id.split(".")
    return {
        "unique_id": unique_id,
        "name": name[0],
        "resource_type": kind,
        "config": {"materialized": materialized},
        "depends_on": {"nodes": list(parents)},
    }


def graph(*nodes: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {n["unique_id"]: n for n in nodes}


EVENTS = node("model.shop.events", "kafka_source")
STAGED = node("model.shop.staged", "ephemeral", "model.shop.events")
SHOWN = node("model.shop.shown", "view", "model.shop.staged")


def model(materialized: str, *parents: str, name: str = "orders") -> dict[str, Any]:
    return node(f"model.shop.{name}", materialized, *parents)


@pytest.mark.parametrize("materialized", ["upsert_kafka", "kafka", "incremental", "table", "some_custom_materialization"])
@pytest.mark.parametrize("parent", ["events", "staged", "shown"])
def test_model_behind_views_and_ephemeral_models_consumes(materialized: str, parent: str) -> None:
    nodes = graph(EVENTS, STAGED, SHOWN, model(materialized, f"model.shop.{parent}"))
    found = consumers("model.shop.events", nodes)
    assert found.models == ("model.shop.orders",)
    assert found.views == (("model.shop.shown",) if parent == "shown" else ())
    assert sources("model.shop.orders", nodes) == ["model.shop.events"]


def test_snapshot_and_model_of_another_package_consume() -> None:
    history = node("snapshot.shop.history", "snapshot", "model.shop.events")
    nodes = graph(EVENTS, history, node("model.pkg.copy", "table", "model.shop.events"))
    assert consumers("model.shop.events", nodes).models == ("model.pkg.copy", "snapshot.shop.history")


def test_tests_operations_and_views_alone_do_not_consume() -> None:
    nodes = graph(
        EVENTS,
        STAGED,
        SHOWN,
        node("test.shop.unique_events.abc", "test", "model.shop.events"),
        node("operation.shop.hook", "view", "model.shop.events"),
        node("analysis.shop.look", "view", "model.shop.events"),
    )
    found = consumers("model.shop.events", nodes)
    assert (found.models, found.views) == ((), ())


def test_table_is_built_again_so_that_models_behind_it_consume_too() -> None:
    nodes = graph(EVENTS, model("table", "model.shop.events", name="latest"), model("kafka", "model.shop.latest"))
    assert consumers("model.shop.events", nodes).models == ("model.shop.latest", "model.shop.orders")
    assert sources("model.shop.orders", nodes) == []


@pytest.mark.parametrize("materialized", ["incremental", "upsert_kafka", "kafka"])
def test_models_behind_one_that_keeps_its_rows_do_not_consume(materialized: str) -> None:
    nodes = graph(EVENTS, model(materialized, "model.shop.events", name="kept"), model("kafka", "model.shop.kept"))
    assert consumers("model.shop.events", nodes).models == ("model.shop.kept",)


@pytest.mark.parametrize("name", ["orders", "orders.v2", "shop.orders", "shop.orders.v2"])
def test_commit_without_names_a_model_with_or_without_package_and_version(name: str) -> None:
    second = node("model.shop.orders.v2", "kafka", "model.shop.events")
    nodes = graph(EVENTS, second, model("kafka", "model.shop.events", name="other"))
    assert name in names_of(second)
    assert consumers("model.shop.events", nodes).without([name], nodes).models == ("model.shop.other",)
