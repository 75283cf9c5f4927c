"""A group is committed only if every consumer of its source was part of the command and succeeded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.source.consumers import Consumers
from dbt.adapters.upsert_kafka.source.group_offsets import GroupSlice, Invocation, committed_in_transaction, reasons_to_hold
from dbt.adapters.upsert_kafka.source.slices import Slice

RESPONSE: dict[str, Any] = {"group": "g", "slice": {"events": {"0": [2, 4], "1": [0, 0]}}, "committed": {"events": {"0": 2}}}
ORDERS, OTHER, SHOWN = "model.shop.orders", "model.shop.other", "model.shop.shown"
NODES = {unique_id: {"unique_id": unique_id, "resource_type": "model"} for unique_id in (ORDERS, OTHER, SHOWN)}


def invocation(defers: Any = False, responses: Any = None, **statuses: str) -> Invocation:
    results = [
        SimpleNamespace(
            node=SimpleNamespace(unique_id=f"model.shop.{name}"), status=status, adapter_response=(responses or {}).get(name)
        )
        for name, status in statuses.items()
    ]
    return Invocation.of(results, defers)


@pytest.mark.parametrize(
    ("statuses", "reasons"),
    [
        ({"orders": "success", "other": "success"}, []),
        ({"orders": "success"}, ["model other was not part of this command"]),
        ({"orders": "error", "other": "skipped"}, ["model orders did not succeed", "model other was skipped"]),
        ({"orders": "partial success", "other": "success"}, ["model orders did not succeed"]),
        ({}, ["model orders was not part of this command", "model other was not part of this command"]),
    ],
)
def test_each_consumer_that_did_not_succeed_is_named(statuses: dict[str, str], reasons: list[str]) -> None:
    assert reasons_to_hold(Consumers((ORDERS, OTHER)), NODES, invocation(**statuses)) == reasons


def test_dry_run_of_a_consumer_holds() -> None:
    done = invocation(responses={"orders": {"dry_run": True}}, orders="success")
    assert reasons_to_hold(Consumers((ORDERS,)), NODES, done) == ["model orders was a dry run"]


def test_source_without_consumers_is_not_committed() -> None:
    assert reasons_to_hold(Consumers(), NODES, invocation()) == ["no model that stores rows selects from the source"]


def test_view_outside_of_the_command_holds_only_with_defer() -> None:
    found = Consumers((ORDERS,), views=(SHOWN,))
    assert reasons_to_hold(found, NODES, invocation(orders="success")) == []
    [reason] = reasons_to_hold(found, NODES, invocation(defers=True, orders="success"))
    assert reason == "model shown was not part of this command, and --defer may have replaced it"
    assert reasons_to_hold(found, NODES, invocation(defers=True, orders="success", shown="success")) == []


def test_commit_in_the_transaction_of_a_consumer_is_recognized() -> None:
    done = invocation(responses={"orders": {"groups": ["g"]}}, orders="success", other="success")
    assert committed_in_transaction("g", Consumers((ORDERS,)), done)
    assert not committed_in_transaction("g", Consumers((OTHER,)), done)
    assert not committed_in_transaction("another", Consumers((ORDERS,)), done)


def test_slice_survives_the_catalog_and_knows_whether_the_group_moved() -> None:
    read = GroupSlice.of(RESPONSE)
    assert read is not None and GroupSlice.from_text(read.as_text()) == read
    assert read.slice == Slice.from_dict(RESPONSE["slice"])
    again = GroupSlice.from_text(read.as_text())
    assert again is not None and again.slice.committed == {("events", 0): 2}
    assert not again.has_moved({("events", 0): 2})
    assert again.has_moved({("events", 0): 3}) and again.has_moved({("events", 0): 2, ("events", 1): 0})
    assert again.is_committed({("events", 0): 4, ("events", 1): 0}) and not again.is_committed({("events", 0): 4})
    assert GroupSlice.of({"slice": {}}) is None and GroupSlice.from_text(None) is None
