"""The constraints of a model's contract that a topic can keep: not_null and primary_key.

Leaves names and types of columns to dbt's own check, and duplicates and nulls in the key to `guards`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.errors import count_of
from dbt.adapters.upsert_kafka.spark.metrics import ObservedMetrics
from dbt.adapters.upsert_kafka.sql import quote_identifier


@dataclass(frozen=True)
class Constraints:
    """The constraints in a model's YAML; none if the contract is not enforced."""

    not_null: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()


def constraints(model: Mapping[str, Any]) -> Constraints:
    """The not_null and primary_key constraints of the columns and of the model."""
    if not (model["config"].get("contract") or {}).get("enforced"):
        return Constraints()
    of_columns = [(c, str(column["name"])) for column in model["columns"].values() for c in column.get("constraints") or ()]
    not_null = [name for constraint, name in of_columns if constraint["type"] == "not_null"]
    primary_key = [name for constraint, name in of_columns if constraint["type"] == "primary_key"]
    for constraint in model.get("constraints") or ():
        if constraint["type"] == "primary_key":
            primary_key += constraint["columns"]
        elif constraint["type"] == "not_null":
            not_null += constraint["columns"]
    return Constraints(tuple(dict.fromkeys(not_null)), tuple(dict.fromkeys(primary_key)))


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


class NullCount:
    """Counts the nulls in columns with a not_null constraint, while the rows are computed for another reason."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns
        self._metrics = ObservedMetrics()

    def observe(self, rows: DataFrame) -> DataFrame:
        """The same rows; they are counted when they are computed."""
        if not self._columns:
            return rows
        counts = [F.count_if(F.col(quote_identifier(name)).isNull()).alias(f"c{i}") for i, name in enumerate(self._columns)]
        return self._metrics.observe(rows, *counts)

    def violations(self) -> list[str]:
        """One sentence per column that has nulls. Call it after the rows were computed."""
        if not self._columns:
            return []
        found = self._metrics.values
        numbers = {name: found[f"c{i}"] for i, name in enumerate(self._columns)}
        return [
            f"{count_of(number, 'row', 'has', 'have')} NULL in '{name}', which has a not_null constraint. "
            "Filter such rows in the SELECT."
            for name, number in numbers.items()
            if number
        ]
