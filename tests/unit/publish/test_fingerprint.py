"""What an apply says about a model that is not as it was planned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.publish.fingerprint import Fingerprint, Messages

PLANNED = Fingerprint(
    "c1", "t1", {"0": 3, "1": 5}, {"cleanup.policy": "compact"}, {"format": "json"}, "s", "l", 7, Messages(3, 9, "d")
)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"cluster_id": "c2"}, ["the cluster was c1, it is c2 now"]),
        ({"topic_id": "t2"}, ["the topic was deleted and created again"]),
        ({"topic_id": None, "end": {}}, ["the topic was deleted"]),
        ({"end": {"0": 3, "1": 5, "2": 0}}, ["the topic had 2 partitions, it has 3 now"]),
        ({"end": {"0": 3, "1": 6}}, ["the topic was written to: the end offsets moved (partition 1 from 5 to 6)"]),
        ({"settings": {"cleanup.policy": "delete"}}, ["topic setting cleanup.policy was compact, it is delete now"]),
        ({"options": {"format": "csv"}}, ["option format was json, it is csv now"]),
        ({"options": {}}, ["option format was json, it is not set now"]),
        ({"select": "other"}, ["the SELECT is another"]),
        ({"layout": "other"}, ["the columns or their types are others"]),
        ({"messages": Messages(3, 9, "e")}, ["the rows are others"]),
        ({"messages": Messages(4, 9, "e")}, ["the rows are others: 3 messages were planned, 4 would be sent now"]),
    ],
)
def test_differences(changed: dict[str, Any], expected: list[str]) -> None:
    assert PLANNED.differences(replace(PLANNED, **changed)) == expected


def test_topic_that_was_created_since() -> None:
    planned = replace(PLANNED, topic_id=None, end={}, settings={})
    assert planned.differences(PLANNED) == ["the topic was created"]


def test_json_keeps_everything() -> None:
    assert Fingerprint.from_dict(PLANNED.as_dict()) == PLANNED
