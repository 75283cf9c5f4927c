"""Which consumer groups of sources to commit at the end of a dbt invocation.

A group is committed if all nodes downstream of its source succeeded. Otherwise its offsets stay unchanged, and the next run reads
the same slice again. Leaves the commit itself to `kafka_client`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dbt.adapters.upsert_kafka.source.slices import Slice

SUCCEEDED = ("success", "pass", "warn", "no-op")


@dataclass(frozen=True)
class Commit:
    """The offsets to commit for the group of one source."""

    source: str
    group: str
    slice: Slice
    failed: tuple[str, ...] = ()
    """Nodes downstream that did not succeed. If there are any, the group must not be committed."""


def due(results: Sequence[Any], nodes: Mapping[str, Mapping[str, Any]]) -> Iterator[Commit]:
    """One Commit for each source that succeeded and has a group.

    Args:
        results: `results` in the context of dbt's on-run-end hooks.
        nodes: `graph.nodes` of dbt's context.
    """
    status = {result.node.unique_id: str(getattr(result.status, "value", result.status)) for result in results}
    for result in results:
        response = result.adapter_response or {}
        if response.get("group") and status[result.node.unique_id] in SUCCEEDED:
            downstream = _downstream(result.node.unique_id, nodes)
            failed = tuple(sorted(node for node in downstream if status.get(node, SUCCEEDED[0]) not in SUCCEEDED))
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
