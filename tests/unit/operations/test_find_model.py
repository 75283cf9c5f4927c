"""The model that a run-operation names is found, or the error says why not."""

from __future__ import annotations

from typing import Any

import pytest

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.operations.find_model import find_model

NODES: dict[str, Any] = {
    "test.shop.users": {"resource_type": "test", "name": "users", "config": {"materialized": "test"}},
    "model.shop.users": {"resource_type": "model", "name": "users", "config": {"materialized": "upsert_kafka"}},
    "model.shop.orders": {"resource_type": "model", "name": "orders", "config": {"materialized": "view"}},
}


def test_model_is_found_by_its_name() -> None:
    assert find_model(NODES, "avro_schema", "users", ["upsert_kafka", "kafka"]) is NODES["model.shop.users"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("user", "avro_schema: the project has no model 'user'. Check the name."),
        ("orders", "avro_schema: 'orders' is materialized as view. Choose a model that is upsert_kafka or kafka."),
    ],
)
def test_model_that_cannot_be_used_is_named(name: str, message: str) -> None:
    with pytest.raises(OptionsError) as refusal:
        find_model(NODES, "avro_schema", name, ["upsert_kafka", "kafka"])
    assert str(refusal.value.msg) == message
