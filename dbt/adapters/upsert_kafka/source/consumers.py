"""Which models store the messages of a source, read from dbt's graph.

A model consumes a source if it selects from it directly or through relations that keep nothing of an earlier slice: views,
ephemeral models, and tables, which every run builds again. Tests, exposures and disabled models don't count. Leaves to
`group_offsets` what follows for the group of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dbt.adapters.upsert_kafka.options.table import KAFKA_SOURCE

Nodes = Mapping[str, Mapping[str, Any]]
"""dbt's `graph.nodes`, by unique_id."""

STORE_NOTHING = ("view", "ephemeral")
BUILT_AGAIN = "table"


@dataclass(frozen=True)
class Consumers:
    """The nodes between a source and what is stored of it, by unique_id and sorted."""

    models: tuple[str, ...] = ()
    """Models and snapshots that store rows of the source."""
    views: tuple[str, ...] = ()
    """Views through which a consumer reads the source."""

    def without(self, names: Iterable[str], nodes: Nodes) -> Consumers:
        """The consumers except models with one of these names: `orders`, `orders.v2`, or with the package `shop.orders`."""
        models = tuple(unique_id for unique_id in self.models if not names_of(nodes[unique_id]) & set(names))
        return Consumers(models, self.views)


def names_of(node: Mapping[str, Any]) -> set[str]:
    """The names by which `commit_without` may name a model."""
    _, package, name = str(node["unique_id"]).split(".", 2)
    return {str(node["name"]), name, f"{package}.{node['name']}", f"{package}.{name}"}


def consumers(source: str, nodes: Nodes) -> Consumers:
    """The consumers of a source."""
    children = _children(nodes)
    models, views = _reached(source, children, nodes)
    used = [view for view in views if _reached(view, children, nodes)[0]]
    return Consumers(tuple(sorted(models)), tuple(sorted(used)))


def sources(model: str, nodes: Nodes) -> list[str]:
    """The kafka_source models that a model reads, directly or through views and ephemeral models."""
    found, waiting, seen = [], [model], {model}
    while waiting:
        for parent in _parents(nodes[waiting.pop()]):
            kind = _materialized(nodes.get(parent))
            if parent in seen or kind is None:
                continue
            seen.add(parent)
            if kind == KAFKA_SOURCE:
                found.append(parent)
            elif kind in STORE_NOTHING:
                waiting.append(parent)
    return sorted(found)


def _reached(start: str, children: Mapping[str, list[str]], nodes: Nodes) -> tuple[set[str], set[str]]:
    """Models that store rows, and views, which can be reached through views, ephemeral models and tables."""
    models: set[str] = set()
    views: set[str] = set()
    waiting, seen = [start], {start}
    while waiting:
        for child in children.get(waiting.pop(), ()):
            kind = _materialized(nodes[child])
            if child in seen or kind is None:
                continue
            seen.add(child)
            if kind not in STORE_NOTHING:
                models.add(child)
            elif kind == "view":
                views.add(child)
            if kind in (*STORE_NOTHING, BUILT_AGAIN):
                waiting.append(child)
    return models, views


def _children(nodes: Nodes) -> dict[str, list[str]]:
    children: dict[str, list[str]] = {}
    for unique_id, node in nodes.items():
        for parent in _parents(node):
            children.setdefault(parent, []).append(unique_id)
    return children


def _parents(node: Mapping[str, Any]) -> Iterable[str]:
    return (node.get("depends_on") or {}).get("nodes") or ()


def _materialized(node: Mapping[str, Any] | None) -> str | None:
    """How a node stores its rows; None for tests and other nodes that are no relation."""
    if node is None or node["resource_type"] not in ("model", "snapshot"):
        return None
    return str(node["config"]["materialized"])
