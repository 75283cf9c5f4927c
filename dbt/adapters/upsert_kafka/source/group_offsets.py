"""Commit a source's consumer group only when everything downstream of it in this invocation succeeded.

A run that failed anywhere downstream leaves the group where it was, so the next run reads the same slice again. Leaves to
`topics` how a commit is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dbt.adapters.upsert_kafka.slices import Slice

SUCCEEDED = ("success", "pass", "warn", "no-op")


@dataclass(frozen=True)
class Commit:
    """What one source's group is due for."""

    source: str
    group: str
    slice: Slice
    failed: tuple[str, ...] = ()
    """Nodes downstream that did not succeed."""


def due(results: Sequence[Any], nodes: Mapping[str, Mapping[str, Any]]) -> Iterator[Commit]:
    """The commits of an invocation.

    Args:
        results: dbt's `results` of on-run-end.
        nodes: dbt's `graph.nodes`.
    """
    status = {result.node.unique_id: str(getattr(result.status, "value", result.status)) for result in results}
    for result in results:
        response = result.adapter_response or {}
        if response.get("group") and status[result.node.unique_id] in SUCCEEDED:
            below = _downstream(result.node.unique_id, nodes)
            failed = tuple(sorted(node for node in below if status.get(node, SUCCEEDED[0]) not in SUCCEEDED))
            yield Commit(result.node.unique_id, response["group"], Slice.from_dict(response["slice"]), failed)


def _downstream(root: str, nodes: Mapping[str, Mapping[str, Any]]) -> set[str]:
    children: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for parent in node.get("depends_on", {}).get("nodes", ()):
            children.setdefault(parent, []).append(name)
    found: set[str] = set()
    waiting = [root]
    while waiting:
        new = set(children.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found
