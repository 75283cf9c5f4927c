"""A model's contract, where dbt enforces it: what its constraints promise about the rows, checked before they are published.

Leaves names and types of columns to dbt's own check, and the key's duplicates and nulls to `guards`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.sql import quote_identifier
from dbt.adapters.upsert_kafka.tally import Tally


@dataclass(frozen=True)
class Constraints:
    """What the YAML of a model promises; nothing where its contract is not enforced."""

    not_null: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()


def constraints(model: Mapping[str, Any]) -> Constraints:
    """The constraints on columns and on the model that a topic can keep: not_null and primary_key."""
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
    """The model's config; a primary_key constraint stands for a unique_key that is not set."""
    config = dict(model["config"])
    key, given = constraints(model).primary_key, config.get("unique_key")
    if not key:
        return config
    if not given:
        return {**config, "unique_key": list(key)}
    columns = [given] if isinstance(given, str) else list(given)
    if [name.lower() for name in columns] != [name.lower() for name in key]:
        raise OptionsError(
            f"{model['name']}: unique_key is {', '.join(columns)} and the primary_key constraint {', '.join(key)}: "
            "make them the same, or leave unique_key out"
        )
    return config


class NullCount:
    """Counts nulls of the columns that must have none, while the rows pass by."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._seen = Tally()

    def watch(self, rows: DataFrame) -> DataFrame:
        if not self.columns:
            return rows
        counts = [F.count_if(F.col(quote_identifier(name)).isNull()).alias(f"c{i}") for i, name in enumerate(self.columns)]
        return self._seen.of(rows, *counts)

    def reasons(self) -> list[str]:
        """Once the rows were computed: one reason for each column that has nulls."""
        if not self.columns:
            return []
        found = self._seen.found
        return [
            f"{found[f'c{i}']} rows have NULL in '{name}', which has a not_null constraint; filter them in the SELECT"
            for i, name in enumerate(self.columns)
            if found[f"c{i}"]
        ]
