"""The topics of a project's models: duplicates are refused, and sources that read them get the full names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.options.model_topics import ModelTopics, with_full_subjects


def model(name: str, **config: Any) -> tuple[str, dict[str, Any]]:
    settings = {"materialized": "upsert_kafka", "unique_key": "id", **config}
    return f"model.shop.{name}", {"resource_type": "model", "name": name, "config": settings}


def parse(node: Mapping[str, Any]) -> options.ModelOptions:
    return options.parse(node["config"]["materialized"], node["name"], node["config"])


def topics(*nodes: tuple[str, dict[str, Any]]) -> ModelTopics:
    """With a generate_topic_name that leaves white space, as a macro without return() may."""
    return ModelTopics.of(dict(nodes), parse, lambda custom, node: f"\n  {custom or node['name']} ")


def full_name(name: str) -> str:
    return f"ci.{name}.v2"


def source(**config: Any) -> options.ModelOptions:
    return options.parse("kafka_source", "events", {"materialized": "kafka_source", **config})


def test_two_models_with_one_topic_are_refused_and_both_are_named() -> None:
    found = topics(model("orders"), model("buyers", topic="orders"), model("users"))
    for name, other in (("orders", "buyers"), ("buyers", "orders")):
        with pytest.raises(OptionsError) as refusal:
            found.check(f"model.shop.{name}")
        assert str(refusal.value.msg) == (
            f"model {name}: topic 'orders' is also the topic of model {other}. Nothing was written. "
            "Set another `topic` for one of them"
        )
    found.check("model.shop.users")


def test_one_topic_name_on_two_clusters_is_allowed() -> None:
    found = topics(model("orders"), model("buyers", topic="orders", bootstrap_servers="other:9092"))
    found.check("model.shop.orders")
    found.check("model.shop.buyers")


def test_model_with_wrong_options_does_not_concern_other_models() -> None:
    found = topics(model("orders"), model("buyers", topic="orders", unique_key=None))
    found.check("model.shop.orders")
    found.check("model.shop.buyers")


def test_nodes_that_write_to_no_topic_are_left_out() -> None:
    other = {"resource_type": "test", "name": "t", "config": {"materialized": "test"}}
    found = topics(
        ("test.shop.t", other), model("a", materialized="view"), model("b", materialized="kafka_source", topic="orders")
    )
    assert found.by_model == {}


def test_other_topics_are_those_of_all_other_models() -> None:
    found = topics(model("orders"), model("users"))
    assert found.others(model("users")[0], full_name) == {"ci.orders.v2"}


def test_source_gets_the_full_name_of_topics_of_the_project_only() -> None:
    found = topics(model("orders"))
    assert found.full_source(source(topic="orders"), full_name).topic == "ci.orders.v2"
    assert found.full_source(source(topic="clicks;orders"), full_name).topic == "clicks;ci.orders.v2"
    for other in (source(topic="clicks"), source(topic_pattern="ord.*"), source(topic="orders", bootstrap_servers="other:9092")):
        assert found.full_source(other, full_name) == other


def test_subjects_that_a_model_names_get_prefix_and_suffix() -> None:
    config = {"format": "avro-confluent", "value_avro_confluent_subject": "order-rows"}
    sink = parse(model("orders", **config)[1])
    assert with_full_subjects(sink, full_name).value_format_options["subject"] == "ci.order-rows.v2"
    assert "subject" not in with_full_subjects(sink, full_name).key_format_options
    found = topics(model("orders"))
    assert found.full_source(source(topic="orders", **config), full_name).value_format_options["subject"] == "ci.order-rows.v2"
    assert found.full_source(source(topic="clicks", **config), full_name).value_format_options["subject"] == "order-rows"
