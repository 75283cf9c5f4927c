"""Constraints in a model's YAML."""

from __future__ import annotations

from typing import Any

from dbt.adapters.upsert_kafka.publish.contracts import Check, Constraints, constraints, problems, warnings, with_key


def model(enforced: bool = True, constraints: list[dict[str, Any]] | None = None, **config: Any) -> dict[str, Any]:
    columns = {
        "id": {"name": "id", "constraints": [{"type": "primary_key"}, {"type": "not_null"}]},
        "name": {"name": "name", "constraints": [{"type": "not_null"}]},
        "note": {"name": "note"},
    }
    contract = {"contract": {"enforced": enforced}}
    return {"name": "users", "columns": columns, "constraints": constraints or [], "config": {**contract, **config}}


def test_column_constraints_are_read() -> None:
    assert constraints(model()) == Constraints(not_null=("id", "name"), primary_key=("id",))


def test_model_constraints_are_read() -> None:
    listed: list[dict[str, Any]] = [{"type": "primary_key", "columns": ["name", "id"]}, {"type": "check", "expression": "id > 0"}]
    found = constraints(model(constraints=listed))
    assert found.primary_key == ("id", "name")
    assert found.checks == (Check("id > 0"),)


def test_contract_that_is_not_enforced_has_no_constraints() -> None:
    assert constraints(model(enforced=False)) == Constraints()
    assert "unique_key" not in with_key(model(enforced=False))


def test_primary_key_constraint_is_default_of_unique_key() -> None:
    assert with_key(model())["unique_key"] == ["id"]


def test_unique_key_equal_to_primary_key_is_accepted() -> None:
    assert with_key(model(unique_key="ID"))["unique_key"] == "ID"


def test_unique_key_other_than_primary_key_is_refused() -> None:
    assert problems(model(unique_key="name")) == [
        "unique_key is name, but the primary_key constraint is id; make them equal, or remove unique_key"
    ]
    assert problems(model(unique_key="ID")) == problems(model()) == []


def test_constraint_that_a_topic_does_not_enforce_gives_a_warning() -> None:
    listed: list[dict[str, Any]] = [
        {"type": "unique", "columns": ["ID"]},
        {"type": "unique", "columns": ["name"]},
        {"type": "foreign_key", "expression": "x", "warn_unenforced": False},
        {"type": "check", "expression": "id > 0"},
    ]
    [warning] = warnings(model(constraints=listed), ["id"])
    assert warning.startswith("unique constraint on name is not enforced on a topic. Add a data test")
    assert warnings(model(enforced=False, constraints=listed), ["id"]) == []
