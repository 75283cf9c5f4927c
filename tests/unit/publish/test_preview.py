"""The lines of a dry run: the same facts as in a plan."""

from __future__ import annotations

import pytest

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.kafka_client.topic_drift import Drift
from dbt.adapters.upsert_kafka.publish.fingerprint import Fingerprint, Messages
from dbt.adapters.upsert_kafka.publish.preview import Preview, Sample, lines, log

FOUND = Preview(
    model="users",
    topic="shop.users",
    owner="model users of project shop",
    environment="dev",
    fingerprint=Fingerprint(messages=Messages(2, 65, "2:1:2")),
    counts={"insert": 1, "update": 1, "unchanged": 5},
    live_keys=6,
    notes=("a new column: mail",),
    drift=(Drift("segment.ms", "5", "3"),),
    on_drift="continue",
    readers=("User:ann",),
    samples=(Sample("update", {"id": 1}, {"a": 1}, {"a": 2}, ("a",), {"op": "d"}),),
)


def test_all_facts_are_logged() -> None:
    assert list(lines(FOUND)) == [
        "topic 'shop.users', owner: model users of project shop, environment: dev, 6 live keys",
        "a new column: mail",
        "topic setting segment.ms is 5, the model asks for 3; this is left as it is (on_configuration_change='continue')",
        "A run gives READ on the topic to User:ann, and revokes it from all others (grants).",
        "would insert 1 key",
        "would update 1 key, for example",
        '  {"id":1}: {"a":1} -> {"op":"d"}, then {"a":2}',
        "would send 2 messages, 65 bytes",
    ]


def test_refusals_come_first() -> None:
    refused = Preview(**{**vars(FOUND), "refusals": ("3 keys would be deleted",)})
    assert next(lines(refused)) == "would be refused: 3 keys would be deleted"
    with pytest.raises(GuardError, match=r"(?s)model users: 3 keys would be deleted\s+Nothing was written"):
        log(refused)
