"""The constraints of a model's contract that a topic can keep: not_null, check and primary_key. Others give a warning.

Leaves names and types of columns to dbt's own check, duplicates and nulls in the key to `guards`, and the rows to `violations`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ENFORCED = ("check", "not_null", "primary_key")


@dataclass(frozen=True)
class Check:
    """A check constraint: a SQL condition that no row may violate. As in SQL, NULL does not violate it."""

    expression: str
    name: str | None = None

    def __str__(self) -> str:
        return f"check constraint {self.name} ({self.expression})" if self.name else f"check constraint ({self.expression})"


@dataclass(frozen=True)
class Constraints:
    """The constraints in a model's YAML; none if the contract is not enforced."""

    not_null: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()


def constraints(model: Mapping[str, Any]) -> Constraints:
    """The not_null, check and primary_key constraints of the columns and of the model."""
    if not _is_enforced(model):
        return Constraints()
    of_columns = [(c, str(column["name"])) for column in model["columns"].values() for c in column.get("constraints") or ()]
    not_null = [name for constraint, name in of_columns if constraint["type"] == "not_null"]
    primary_key = [name for constraint, name in of_columns if constraint["type"] == "primary_key"]
    for constraint in model.get("constraints") or ():
        if constraint["type"] == "primary_key":
            primary_key += constraint["columns"]
        elif constraint["type"] == "not_null":
            not_null += constraint["columns"]
    listed = [constraint for constraint, _ in of_columns] + list(model.get("constraints") or ())
    checks = [Check(str(c["expression"]), c.get("name")) for c in listed if c["type"] == "check" and c.get("expression")]
    return Constraints(tuple(dict.fromkeys(not_null)), tuple(dict.fromkeys(primary_key)), tuple(dict.fromkeys(checks)))


def warnings(model: Mapping[str, Any], unique_key: Sequence[str]) -> list[str]:
    """One warning for each constraint that a topic does not enforce, unless the constraint has `warn_unenforced: false`."""
    if not _is_enforced(model):
        return []
    of_columns = [(c, [str(column["name"])]) for column in model["columns"].values() for c in column.get("constraints") or ()]
    of_model = [(c, [str(name) for name in c.get("columns") or ()]) for c in model.get("constraints") or ()]
    key = sorted(name.lower() for name in unique_key)
    return [
        f"{constraint['type']} constraint on {', '.join(columns) or 'the model'} is not enforced on a topic. Add a data test, or "
        "set warn_unenforced: false on the constraint."
        for constraint, columns in [*of_columns, *of_model]
        if constraint["type"] not in ENFORCED and constraint.get("warn_unenforced", True)
        # Every key is unique.
        if not (constraint["type"] == "unique" and sorted(name.lower() for name in columns) == key)
    ]


def _is_enforced(model: Mapping[str, Any]) -> bool:
    return bool((model["config"].get("contract") or {}).get("enforced"))


def with_key(model: Mapping[str, Any]) -> dict[str, Any]:
    """The model's config, with the primary_key constraint as unique_key if that is not set."""
    config = dict(model["config"])
    key = constraints(model).primary_key
    return {**config, "unique_key": list(key)} if key and not config.get("unique_key") else config


def problems(model: Mapping[str, Any]) -> list[str]:
    """Constraints that contradict the model's config, one sentence each."""
    key, unique_key = constraints(model).primary_key, model["config"].get("unique_key")
    if not key or not unique_key:
        return []
    columns = [unique_key] if isinstance(unique_key, str) else list(unique_key)
    if [str(name).lower() for name in columns] == [name.lower() for name in key]:
        return []
    listed, constrained = ", ".join(map(str, columns)), ", ".join(key)
    return [f"unique_key is {listed}, but the primary_key constraint is {constrained}; make them equal, or remove unique_key"]
