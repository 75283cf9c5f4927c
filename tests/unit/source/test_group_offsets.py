"""A group is committed only if no node downstream of its source failed in the same invocation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.source.group_offsets import due
from dbt.adapters.upsert_kafka.source.slices import Slice

SLICE = {"events": {"0": [2, 4], "1": [0, 0]}}
NODES: dict[str, dict[str, Any]] = {
    "source": {},
    "staged": {"depends_on": {"nodes": ["source"]}},
    "final": {"depends_on": {"nodes": ["staged", "elsewhere"]}},
    "test": {"depends_on": {"nodes": ["final"]}},
    "elsewhere": {"depends_on": {"nodes": []}},
}


def results(**statuses: str) -> list[Any]:
    return [
        SimpleNamespace(
            node=SimpleNamespace(unique_id=name),
            status=status,
            adapter_response={"group": "g", "slice": SLICE} if name == "source" else {},
        )
        for name, status in statuses.items()
    ]


@pytest.mark.parametrize(
    ("statuses", "failed"),
    [
        ({"source": "success"}, ()),
        ({"source": "success", "staged": "success", "final": "success", "test": "warn"}, ()),
        ({"source": "success", "staged": "error", "final": "skipped"}, ("final", "staged")),
        ({"source": "success", "staged": "success", "final": "success", "test": "fail"}, ("test",)),
        ({"source": "success", "staged": "success", "elsewhere": "error"}, ()),
    ],
)
def test_only_failed_nodes_downstream_are_listed(statuses: dict[str, str], failed: tuple[str, ...]) -> None:
    [commit] = due(results(**statuses), NODES)
    assert (commit.source, commit.group, commit.failed) == ("source", "g", failed)
    assert commit.slice == Slice.from_dict(SLICE)
    assert commit.slice.ends() == {("events", 0): 4, ("events", 1): 0}


def test_failed_source_and_source_without_group_give_no_commit() -> None:
    assert list(due(results(source="error", staged="skipped"), NODES)) == []
    assert list(due(results(staged="success"), NODES)) == []
