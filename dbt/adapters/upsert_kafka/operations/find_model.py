"""Finds the model that a run-operation names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dbt.adapters.upsert_kafka.errors import OptionsError


def find_model(nodes: Mapping[str, Any], operation: str, name: str, materializations: Sequence[str]) -> Any:
    """Return the node of the model.

    Args:
        nodes: dbt's `graph.nodes`.
        operation: the run-operation, for messages.
        materializations: those that the operation supports.

    Raises:
        OptionsError: there is no such model, or it has another materialization.
    """
    found = [node for node in nodes.values() if node["resource_type"] == "model" and node["name"] == name]
    if not found:
        raise OptionsError(f"{operation}: the project has no model '{name}'. Check the name.")
    materialized = found[0]["config"]["materialized"]
    if materialized not in materializations:
        supported = " or ".join(materializations)
        raise OptionsError(f"{operation}: '{name}' is materialized as {materialized}. Choose a model that is {supported}.")
    return found[0]
