"""Which fields of a state record are used, case by case: the table of docs/state.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.state.trust import NOTHING, trust
from tests.unit.state.test_record import CLAIM, FULL

TOPIC = Topic("orders", 2, "compact", {0: 0, 1: 5}, {0: 7, 1: 9}, id="id")


def test_everything_is_trusted_of_the_same_topic_at_the_same_offsets() -> None:
    found = trust(FULL, "cluster", TOPIC)
    assert (found.owner, found.run, found.created, found.layout) == (FULL.owner, FULL.run, True, FULL.layout)
    assert (found.published, found.log) == (FULL.published, FULL.log)


@pytest.mark.parametrize(
    ("cluster", "topic"),
    [
        pytest.param("cluster", None, id="topic deleted"),
        pytest.param("cluster", replace(TOPIC, id="other"), id="topic created again"),
        pytest.param("other", TOPIC, id="another cluster"),
    ],
)
def test_nothing_is_trusted_of_another_topic(cluster: str, topic: Topic | None) -> None:
    assert trust(FULL, cluster, topic) == NOTHING


@pytest.mark.parametrize(
    "topic",
    [
        pytest.param(replace(TOPIC, end={0: 8, 1: 9}), id="written by another"),
        pytest.param(replace(TOPIC, first={0: 1, 1: 5}), id="truncated"),
        pytest.param(replace(TOPIC, first={**TOPIC.first, 2: 0}, end={**TOPIC.end, 2: 0}), id="partition added"),
    ],
)
def test_log_is_not_trusted_at_other_offsets(topic: Topic) -> None:
    found = trust(FULL, "cluster", topic)
    assert found.log is None
    assert (found.owner, found.layout, found.published) == (FULL.owner, FULL.layout, FULL.published)


@pytest.mark.parametrize("policy", ["compact", "delete", None])
def test_emptied_topic_was_not_published_and_keeps_its_owner(policy: str | None) -> None:
    emptied = replace(TOPIC, first=TOPIC.end, cleanup_policy=policy)
    found = trust(FULL, "cluster", emptied)
    assert (found.published, found.owner) == (None, FULL.owner)


def test_topic_of_events_that_retention_emptied_stays_published() -> None:
    found = trust(FULL, "cluster", replace(TOPIC, first=TOPIC.end, cleanup_policy="delete"), appends=True)
    assert found.published == FULL.published


def test_without_topic_ids_only_exact_offsets_are_trusted() -> None:
    old_broker = replace(TOPIC, id="")
    record = replace(FULL, topic_id=None)
    assert trust(record, "cluster", old_broker).owner == FULL.owner
    assert trust(record, "cluster", replace(old_broker, end={0: 8, 1: 9})) == NOTHING
    assert trust(replace(CLAIM, topic_id=None), "cluster", old_broker) == NOTHING


def test_claim_has_an_owner_and_was_not_published() -> None:
    found = trust(CLAIM, "cluster", TOPIC)
    assert (found.owner, found.published, found.layout, found.log) == (CLAIM.owner, None, None, None)


def test_no_record_trusts_nothing() -> None:
    assert trust(None, "cluster", TOPIC) == NOTHING
