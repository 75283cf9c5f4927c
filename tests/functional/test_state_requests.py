"""What the state record costs: the requests of a run with and without a state topic, counted in kafka-python's clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.kafka_client.internals import KafkaConnectionManager
from dbt.adapters.upsert_kafka.sinks.transaction import Transaction
from dbt.adapters.upsert_kafka.state.store import NO_STATE, StateSettings
from tests.tables import Rows, Table

PRODUCE, LIST_OFFSETS = "ProduceRequest", "ListOffsetsRequest"
LOOKS = {
    # To compare, and before the closing record is written.
    "at-least-once": {"unchanged": 2, "changed": 2},
    # Whether a stream publishes to the topic, before its transaction is aborted; to compare; and after the transaction is opened.
    "exactly-once": {"unchanged": 2, "changed": 3},
}
"""How often a run asks for the end of the state topic, at most. Each look is one request."""
WAITING = "waiting for the commit"
RUNS = {"unchanged": [(1, "ann"), (2, "bob")], "changed": [(1, "ann"), (2, "bo"), (3, "cem")]}


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """The requests that all clients send in the meantime, by their kind.

    A run that has committed asks for the end offsets every 20 ms until the markers are visible. How often depends on the machine,
    so these requests count as `WAITING`.
    """
    found: Counter[str] = Counter()
    send, wait = KafkaConnectionManager.send, Transaction.wait_until_visible
    waiting = Event()

    def counting(self: Any, request: Any, *arguments: Any, **options: Any) -> Any:
        found[WAITING if waiting.is_set() else type(request).__name__] += 1
        return send(self, request, *arguments, **options)

    def marked(self: Any, reports: Any) -> None:
        waiting.set()
        try:
            wait(self, reports)
        finally:
            waiting.clear()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(KafkaConnectionManager, "send", counting)
        patched.setattr(Transaction, "wait_until_visible", marked)
        yield found


def requests_of(table: Table, rows: Rows, state: StateSettings) -> Counter[str]:
    """The requests of the third run of a model; the first two create the topic and read the state topic."""
    for _ in range(2):
        table.publish(RUNS["unchanged"], state=state)
    with counted() as found:
        table.publish(rows, state=state)
    return found


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("run", [pytest.param("unchanged", marks=pytest.mark.nightly), "changed"])
def test_state_costs_one_produce_request_and_the_looks_at_the_state_topic(table: Table, guarantee: str, run: str) -> None:
    table.options["sink_delivery_guarantee"] = guarantee
    with_state = requests_of(table, RUNS[run], StateSettings())
    table.topic += ".without_state"
    without = requests_of(table, RUNS[run], StateSettings(NO_STATE))
    assert with_state[LIST_OFFSETS], "no request was counted"
    assert with_state[PRODUCE] - without[PRODUCE] <= 1, (with_state, without)
    assert with_state[LIST_OFFSETS] - without[LIST_OFFSETS] <= LOOKS[guarantee][run], (with_state, without)
    is_committed = (guarantee, run) == ("exactly-once", "changed")
    assert bool(with_state[WAITING]) == bool(without[WAITING]) == is_committed, (with_state, without)
