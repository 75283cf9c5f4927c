"""How the models of a plan depend on each other: whose upstream changes, and who reads what does not exist yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dbt.adapters.upsert_kafka.options.table import KAFKA_SOURCE, MATERIALIZATIONS, SINKS
from dbt.adapters.upsert_kafka.plan.run import Failure

NOT_YET = "can't be planned yet"


def changing_upstream(unique_id: str, nodes: Mapping[str, Any], changing: Mapping[str, str]) -> tuple[tuple[str, ...], bool]:
    """The models with changes that a model depends on, and whether publishing one of them changes what the model selects.

    A table in between is not built by `apply`, so it stays as it is. Views and ephemeral models are read through. A source is not
    run by `apply`.

    Args:
        changing: names of the models with changes, by unique id.
    """
    found: dict[str, str] = {}
    is_live = False
    seen: set[tuple[str, bool]] = set()
    waiting = [(parent, True) for parent in _parents(nodes.get(unique_id))]
    while waiting:
        parent, live = waiting.pop()
        node = nodes.get(parent)
        if node is None or (parent, live) in seen:
            continue
        seen.add((parent, live))
        materialized = str(getattr(node.config, "materialized", ""))
        if parent in changing:
            found[parent] = changing[parent]
            is_live = is_live or (live and materialized != KAFKA_SOURCE)
        passes = (
            live and materialized in ("view", "ephemeral", *MATERIALIZATIONS) and materialized not in ("upsert_kafka", "kafka")
        )
        waiting += [(grandparent, passes) for grandparent in _parents(node)]
    return tuple(sorted(found.values())), is_live


@dataclass(frozen=True)
class Unpublished:
    """What a plan found out about relations that do not exist yet."""

    nodes: Mapping[str, Any]
    """The nodes of the project by unique id."""
    failures: Mapping[str, Failure]
    missing: Mapping[str, tuple[str, str]]
    """Schema and name of the relation that a model did not find, by the unique id of the model."""
    first: Mapping[str, str]
    """Names of the models that this plan would publish for the first time, by unique id."""

    def reasons(self) -> dict[str, str]:
        """Why models can't be planned yet, by unique id: what they read does not exist before others of the plan are applied."""
        found: dict[str, str] = {}
        failed = [unique_id for unique_id, failure in self.failures.items() if not failure.is_skipped]
        for unique_id in failed:
            if reason := self._reason(unique_id):
                found[unique_id] = reason
        for unique_id, failure in self.failures.items():
            # dbt skips a model if any model above it failed.
            above = [parent for parent in self.above(unique_id) if parent in failed]
            if failure.is_skipped and above and all(parent in found for parent in above):
                names = ", ".join(sorted(self.nodes[parent].name for parent in above))
                found[unique_id] = f"{NOT_YET}: depends on {names}, which {NOT_YET}. Plan again after apply."
        return found

    def failed_above(self, unique_id: str) -> list[str]:
        """The names of the failed models that a skipped model depends on."""
        failed = [parent for parent in self.above(unique_id) if parent in self.failures and not self.failures[parent].is_skipped]
        return sorted(self.nodes[parent].name for parent in failed)

    def above(self, unique_id: str) -> Iterator[str]:
        """The unique ids of all nodes that a node depends on."""
        seen: set[str] = set()
        waiting = list(_parents(self.nodes.get(unique_id)))
        while waiting:
            parent = waiting.pop()
            if parent not in seen and parent in self.nodes:
                seen.add(parent)
                yield parent
                waiting += _parents(self.nodes[parent])

    def _reason(self, unique_id: str) -> str | None:
        missing = self.missing.get(unique_id)
        read = next((parent for parent in self.above(unique_id) if missing == _relation(self.nodes[parent])), None)
        if read is None:
            return None
        if read in self.first:
            return f"{NOT_YET}: reads {self.first[read]}, which this plan publishes for the first time. Plan again after apply."
        if self.nodes[read].config.materialized in SINKS:
            return None
        # A view or table that can't be built yet either.
        first = sorted(self.first[parent] for parent in self.above(read) if parent in self.first)
        name = self.nodes[read].name
        if not first:
            return None
        return (
            f"{NOT_YET}: reads {name}, which is built from {', '.join(first)}, which this plan publishes for the first time. "
            f"After apply, build {name} (dbt run --select {name}) and plan again."
        )


def _relation(node: Any) -> tuple[str, str]:
    """As in `Unpublished.missing`."""
    return str(node.schema).lower(), str(getattr(node, "alias", "")).lower()


def _parents(node: Any) -> Sequence[str]:
    return list(getattr(getattr(node, "depends_on", None), "nodes", ()) or ())
