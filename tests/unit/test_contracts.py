"""What a model's contract promises, read from its YAML."""

from __future__ import annotations

from typing import Any

import pytest

from dbt.adapters.upsert_kafka.contracts import Constraints, constraints, with_key
from dbt.adapters.upsert_kafka.errors import OptionsError


def model(enforced: bool = True, constraints: list[dict[str, Any]] | None = None, **config: Any) -> dict[str, Any]:
    columns = {
        "id": {"name": "id", "constraints": [{"type": "primary_key"}, {"type": "not_null"}]},
        "name": {"name": "name", "constraints": [{"type": "not_null"}]},
        "note": {"name": "note"},
    }
    contract = {"contract": {"enforced": enforced}}
    return {"name": "users", "columns": columns, "constraints": constraints or [], "config": {**contract, **config}}


def test_constraints_of_columns_are_found() -> None:
    assert constraints(model()) == Constraints(not_null=("id", "name"), primary_key=("id",))


def test_constraints_of_the_model_are_found() -> None:
    listed: list[dict[str, Any]] = [{"type": "primary_key", "columns": ["name", "id"]}, {"type": "check", "expression": "id > 0"}]
    found = constraints(model(constraints=listed))
    assert found.primary_key == ("id", "name")


def test_a_contract_that_is_not_enforced_promises_nothing() -> None:
    assert constraints(model(enforced=False)) == Constraints()
    assert "unique_key" not in with_key(model(enforced=False))


def test_a_primary_key_stands_for_a_unique_key_that_is_not_set() -> None:
    assert with_key(model())["unique_key"] == ["id"]


def test_a_unique_key_that_is_the_primary_key_is_kept() -> None:
    assert with_key(model(unique_key="ID"))["unique_key"] == "ID"


def test_a_unique_key_other_than_the_primary_key_is_refused() -> None:
    with pytest.raises(OptionsError, match="users: unique_key is name and the primary_key constraint id: make them the same"):
        with_key(model(unique_key="name"))
