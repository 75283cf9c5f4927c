"""What the state record costs: the requests of a run with and without a state topic, counted in kafka-python's clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.kafka_client.internals import KafkaConnectionManager
from dbt.adapters.upsert_kafka.state.store import NO_STATE, StateSettings
from tests.tables import Rows, Table

ALLOWED = {"ProduceRequest": 1, "ListOffsetsRequest": 2}
"""At most so many requests more for each run."""
RUNS = {"unchanged": [(1, "ann"), (2, "bob")], "changed": [(1, "ann"), (2, "bo"), (3, "cem")]}


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """The requests that all clients send in the meantime, by their kind."""
    found: Counter[str] = Counter()
    send = KafkaConnectionManager.send

    def counting(self: Any, request: Any, *arguments: Any, **options: Any) -> Any:
        found[type(request).__name__] += 1
        return send(self, request, *arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(KafkaConnectionManager, "send", counting)
        yield found


def requests_of(table: Table, rows: Rows, state: StateSettings) -> Counter[str]:
    """The requests of the third run of a model; the first two create the topic and read the state topic."""
    for _ in range(2):
        table.publish(RUNS["unchanged"], state=state)
    with counted() as found:
        table.publish(rows, state=state)
    return found


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("run", RUNS)
def test_state_costs_one_produce_and_two_list_offsets_requests_at_most(table: Table, guarantee: str, run: str) -> None:
    table.options["sink_delivery_guarantee"] = guarantee
    with_state = requests_of(table, RUNS[run], StateSettings())
    table.topic += ".without_state"
    without = requests_of(table, RUNS[run], StateSettings(NO_STATE))
    assert with_state["ListOffsetsRequest"], "no request was counted"
    more = {kind: with_state[kind] - without[kind] for kind in ALLOWED}
    # A transaction that wrote is polled until its markers are visible: how often depends on the machine.
    polls = {"ListOffsetsRequest": 6} if (guarantee, run) == ("exactly-once", "changed") else {}
    assert all(more[kind] <= allowed + polls.get(kind, 0) for kind, allowed in ALLOWED.items()), (more, with_state, without)
