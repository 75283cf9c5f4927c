"""Which groups the hook commits, for every kind of dbt command. The group's offsets are simulated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations import commit_group_offsets
from dbt.adapters.upsert_kafka.operations.commit_group_offsets import GroupSource, commit
from dbt.adapters.upsert_kafka.source.group_offsets import GroupSlice, Invocation
from dbt.adapters.upsert_kafka.state.record import Owner

EVENTS, SHOWN, ORDERS, OTHER = (f"model.shop.{name}" for name in ("events", "shown", "orders", "other"))
RESPONSE = {"group": "g", "slice": {"events": {"0": [2, 4]}}, "committed": {"events": {"0": 2}}}


def node(unique_id: str, materialized: str, *parents: str) -> dict[str, Any]:
    return {
        "unique_id": unique_id,
        "name": unique_id.split(".")[2],
        "resource_type": "model",
        "config": {"materialized": materialized},
        "depends_on": {"nodes": list(parents)},
    }


NODES = {
    n["unique_id"]: n
    for n in (
        node(EVENTS, "kafka_source"),
        node(SHOWN, "view", EVENTS),
        node(ORDERS, "kafka", SHOWN),
        node(OTHER, "incremental", EVENTS),
    )
}


class Group:
    """The offsets of a consumer group, in place of a broker's."""

    def __init__(self, offset: int) -> None:
        self.offset, self.metadata = offset, ""
        self.refuses = False

    def committed(self, _admin: Any, _group: str, partitions: Any) -> dict[Any, Any]:
        return {partition: type("At", (), {"offset": self.offset}) for partition in partitions}

    def commit(self, _admin: Any, _group: str, offsets: Any, metadata: str) -> None:
        if self.refuses:
            raise UpsertKafkaError("group 'g': refused")
        [self.offset], self.metadata = offsets.values(), metadata


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    simulated = Group(2)

    @contextmanager
    def no_clients() -> Iterator[Any]:
        yield lambda _: None

    monkeypatch.setattr(commit_group_offsets, "groups", simulated)
    monkeypatch.setattr(commit_group_offsets, "admin_clients", no_clients)
    return simulated


def run(*nodes: str, failed: tuple[str, ...] = (), defers: bool = False, publishes: bool = True, **response: Any) -> None:
    """The hook at the end of a command that ran these nodes."""
    statuses = {unique_id: "error" if unique_id in failed else "success" for unique_id in nodes}
    responses = {unique_id: {**(RESPONSE if unique_id == EVENTS else response)} for unique_id in nodes}

    def source_of(_: Any) -> GroupSource:
        parsed = options.parse("kafka_source", "events", {"topic": "events", "properties": {"group.id": "g"}})
        in_catalog = GroupSlice.of(RESPONSE)
        return GroupSource("events", parsed, KafkaSettings("one:9092"), Owner("shop", "dev", "s", "events"), lambda: in_catalog)

    commit(NODES, Invocation(statuses, responses, defers), publishes, source_of)


@pytest.mark.parametrize(
    ("nodes", "flags", "offset"),
    [
        ((EVENTS, SHOWN, ORDERS, OTHER), {}, 4),
        # A view need not be part of the command, except with --defer.
        ((EVENTS, ORDERS, OTHER), {}, 4),
        ((EVENTS, ORDERS, OTHER), {"defers": True}, 2),
        ((EVENTS, SHOWN, ORDERS, OTHER), {"defers": True}, 4),
        # dbt retry, or a task per model: the consumers read what the source covered before.
        ((SHOWN, ORDERS, OTHER), {}, 4),
        ((ORDERS, OTHER), {"defers": True}, 2),
        ((ORDERS,), {}, 2),
        ((EVENTS, ORDERS), {}, 2),
        ((EVENTS,), {}, 2),
        ((EVENTS, SHOWN, ORDERS, OTHER), {"failed": (OTHER,)}, 2),
        ((EVENTS, ORDERS, OTHER), {"failed": (EVENTS,)}, 2),
        ((EVENTS, SHOWN, ORDERS, OTHER), {"publishes": False}, 2),
        ((EVENTS, SHOWN, ORDERS, OTHER), {"dry_run": True}, 2),
        # A consumer has committed the group in its transaction.
        ((EVENTS, SHOWN, ORDERS, OTHER), {"groups": ["g"]}, 2),
    ],
)
def test_group_moves_only_if_the_command_consumed_it(
    group: Group, nodes: tuple[str, ...], flags: dict[str, Any], offset: int
) -> None:
    run(*nodes, **flags)
    assert group.offset == offset
    assert group.metadata == ("" if offset == 2 else "dbt-upsert-kafka: " + str(Owner("shop", "dev", "s", "events")))


@pytest.mark.parametrize("offset", [0, 3, 4, 9])
def test_group_that_has_moved_stays_where_it_is(group: Group, offset: int) -> None:
    group.offset = offset
    run(EVENTS, SHOWN, ORDERS, OTHER)
    assert (group.offset, group.metadata) == (offset, "")


def test_refused_commit_is_an_error_with_the_source(group: Group) -> None:
    group.refuses = True
    with pytest.raises(UpsertKafkaError, match="source events: group 'g': refused"):
        run(EVENTS, SHOWN, ORDERS, OTHER)
