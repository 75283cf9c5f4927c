"""The properties of a snapshot's table."""

from __future__ import annotations

from dataclasses import replace

from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.publish import snapshots
from dbt.adapters.upsert_kafka.publish.digest import Digest
from dbt.adapters.upsert_kafka.publish.snapshots import Metadata

TOPIC = Topic("users", 2, first={0: 0, 1: 0}, end={0: 3, 1: 4}, id="a")
METADATA = Metadata(snapshots.fingerprint(TOPIC), Digest(7, 0, -5, 3, 0), keys=7, added=2)


def test_metadata_is_read_as_it_was_saved() -> None:
    assert Metadata.of(METADATA.as_properties()) == METADATA


def test_table_without_properties_has_no_metadata() -> None:
    assert Metadata.of({}) is None
    assert Metadata.of({snapshots.TOPIC: METADATA.topic}) is None, "a table of an older version has no digest"


def test_fingerprint_changes_with_id_and_offsets() -> None:
    others = [
        replace(TOPIC, id="b"),
        replace(TOPIC, first={0: 1, 1: 0}),
        replace(TOPIC, end={0: 3, 1: 5}),
        replace(TOPIC, name="u"),
    ]
    assert METADATA.topic not in {snapshots.fingerprint(other) for other in others}
    assert METADATA.topic == snapshots.fingerprint(replace(TOPIC, end={1: 4, 0: 3}))
