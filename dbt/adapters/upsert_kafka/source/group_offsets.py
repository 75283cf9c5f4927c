"""Whether the offsets of a source's consumer group may be committed after a dbt command.

They are committed by a command in which every consumer of the source succeeded. Otherwise they stay unchanged, and the next run
of the source reads the same messages again. Leaves to `consumers` who they are, and the commit itself to `kafka_client`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dbt.adapters.upsert_kafka.source.consumers import Consumers, Nodes
from dbt.adapters.upsert_kafka.source.slices import Offsets, Slice

SUCCESS = "success"
PROPERTY = "upsert_kafka.group"
"""The table property in which a source keeps its group and slice for later commands, see `GroupSlice.as_text`."""
COMMITTED_BY = "dbt-upsert-kafka: "
"""How the metadata of an offset begins that this adapter committed. The rest names the source."""


@dataclass(frozen=True)
class GroupSlice:
    """What a source read with its consumer group."""

    group: str
    slice: Slice

    @classmethod
    def of(cls, response: Mapping[str, Any]) -> GroupSlice | None:
        """From the source's adapter_response; None if it has no group."""
        if not response.get("group"):
            return None
        return cls(response["group"], Slice.from_dict(response["slice"], response["committed"]))

    @classmethod
    def from_text(cls, text: str | None) -> GroupSlice | None:
        """The inverse of `as_text`; None without a text."""
        return cls.of(json.loads(text)) if text else None

    def as_text(self) -> str:
        """As JSON, in the form of the source's adapter_response."""
        content = {"group": self.group, "slice": self.slice.as_dict(), "committed": self.slice.committed_as_dict()}
        return json.dumps(content, sort_keys=True)

    def is_committed(self, current: Offsets) -> bool:
        """Whether the group is at the end of the slice.

        Args:
            current: the group's offsets now.
        """
        return current == self.slice.ends()

    def has_moved(self, current: Offsets) -> bool:
        """Whether something has committed offsets for the group since the source ran."""
        return current != self.slice.committed


@dataclass(frozen=True)
class Invocation:
    """What a dbt command did."""

    statuses: Mapping[str, str]
    """By the unique_id of the nodes that were part of it."""
    responses: Mapping[str, Mapping[str, Any]]
    """adapter_response of the same nodes."""
    defers: bool = False
    """--defer: a relation that was not part of the command may have been replaced by one of another environment."""

    @classmethod
    def of(cls, results: Sequence[Any], defers: bool = False) -> Invocation:
        """From `results` in the context of dbt's on-run-end hooks."""
        return cls(
            {result.node.unique_id: str(getattr(result.status, "value", result.status)) for result in results},
            {result.node.unique_id: result.adapter_response or {} for result in results},
            defers,
        )

    def succeeded(self, unique_id: str) -> bool:
        return self.statuses.get(unique_id) == SUCCESS

    def includes_any(self, unique_ids: Iterable[str]) -> bool:
        return any(unique_id in self.statuses for unique_id in unique_ids)


def reasons_to_hold(found: Consumers, nodes: Nodes, invocation: Invocation) -> list[str]:
    """Why the group is not committed, one reason for each node; empty if it may be committed.

    Args:
        found: the consumers of the source, without those that `commit_without` releases.
    """
    if not found.models:
        return ["no model that stores rows selects from the source"]
    reasons = []
    for model in found.models:
        what = _what(nodes[model])
        if model not in invocation.statuses:
            reasons.append(f"{what} was not part of this command")
        elif not invocation.succeeded(model):
            status = invocation.statuses[model]
            reasons.append(f"{what} was skipped" if status == "skipped" else f"{what} did not succeed")
        elif invocation.responses[model].get("dry_run"):
            reasons.append(f"{what} was a dry run")
    if invocation.defers:
        reasons += [
            f"{_what(nodes[view])} was not part of this command, and --defer may have replaced it"
            for view in found.views
            if not invocation.succeeded(view)
        ]
    return reasons


def committed_in_transaction(group: str, found: Consumers, invocation: Invocation) -> bool:
    """Whether a consumer committed the group in the transaction in which it published."""
    return any(group in (invocation.responses.get(model, {}).get("groups") or ()) for model in found.models)


def committed_by(source: object) -> str:
    """The metadata with which a source commits its offsets.

    Args:
        source: the model in its environment.
    """
    return f"{COMMITTED_BY}{source}"


def _what(node: Mapping[str, Any]) -> str:
    """`model orders`, `model orders.v2`, `snapshot orders`."""
    return f"{node['resource_type']} {str(node['unique_id']).split('.', 2)[2]}"
