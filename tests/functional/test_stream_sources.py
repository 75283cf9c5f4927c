"""What streams read: topic lists, patterns, startup modes, two streams; and refusals that are decided at the broker."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dbt.adapters.contracts.relation import RelationType
from kafka import KafkaAdminClient
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError, StateError, UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.state.store import NO_STATE, StateSettings
from dbt.adapters.upsert_kafka.streaming import pipeline
from dbt.adapters.upsert_kafka.streaming.sources import StreamSource
from tests.functional.source_tables import Sources
from tests.functional.streams import COLUMNS, VIEWS, StreamTable
from tests.functional.topic_writer import Message, write

EXACTLY_ONCE = {"sink_delivery_guarantee": "exactly-once"}
USERS = "SELECT user_id, region FROM {views}"


@pytest.fixture
def stream(spark: SparkSession, broker: str, topic_name: str, schema_name: str, tmp_path: Path) -> StreamTable:
    return StreamTable(spark, broker, topic_name, schema_name, tmp_path)


@pytest.fixture
def events(stream: StreamTable) -> StreamTable:
    """A model that appends each event."""
    stream.materialization, stream.options, stream.sql = "kafka", {"trigger": "available-now"}, USERS
    return stream


def _send(stream: StreamTable, topic: str, *users: int, at: int | None = None) -> None:
    value = {"region": "a", "viewtime": "2026-11-18 00:00:00"}
    write(stream.broker, topic, [Message({**value, "user_id": user}, timestamp=at) for user in users])


def _users(stream: StreamTable) -> list[int]:
    return sorted(int((record.value or b"").split(b'"user_id":')[1].split(b",")[0].rstrip(b"}")) for record in stream.records())


def test_topic_list_is_one_stream(events: StreamTable) -> None:
    first, second = f"{events.views}-1", f"{events.views}-2"
    _send(events, first, 1, 2, 3)
    _send(events, second, 11, 12)
    events.source_options = {"topic": [first, second]}
    assert events.run(**EXACTLY_ONCE).events == 5
    _send(events, second, 13)
    assert events.run(**EXACTLY_ONCE).events == 1
    assert _users(events) == [1, 2, 3, 11, 12, 13]


def test_pattern_reads_topics_that_are_added(events: StreamTable) -> None:
    events.source_options = {"topic_pattern": f"{events.views.replace('.', '[.]')}-[0-9]+"}
    _send(events, f"{events.views}-1", 1)
    _send(events, f"{events.views}-other", 99)
    assert events.run(**EXACTLY_ONCE).events == 1
    _send(events, f"{events.views}-2", 2, 3)
    assert events.run(**EXACTLY_ONCE).events == 2
    assert _users(events) == [1, 2, 3]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("latest-offset", [3]),
        pytest.param("timestamp", [2, 3], marks=pytest.mark.nightly),
        pytest.param("specific-offsets", [2, 3], marks=pytest.mark.nightly),
    ],
)
def test_startup_mode_is_where_the_stream_begins(events: StreamTable, mode: str, expected: list[int]) -> None:
    now = int(time.time() * 1000)
    _send(events, events.views, 1, at=now - 60_000)
    _send(events, events.views, 2, at=now)
    events.source_options["scan_startup_mode"] = mode
    if mode == "timestamp":
        events.source_options["scan_startup_timestamp_millis"] = now - 1000
    if mode == "specific-offsets":
        events.source_options["scan_startup_specific_offsets"] = "partition:0,offset:1"
    events.run(**EXACTLY_ONCE)
    _send(events, events.views, 3)
    # The startup mode is of the first run only.
    events.run(**EXACTLY_ONCE)
    assert _users(events) == expected


class TwoStreams(StreamTable):
    """Reads the topic `<topic>-clicks` as a second stream."""

    @property
    def clicks(self) -> str:
        return f"{self.topic}-clicks"

    def model(self, **config: Any) -> pipeline.StreamModel:
        found = super().model(**config)
        watermark = {"viewtime": "1 second"}
        source = Sources(self.spark, self.broker, f"{self.schema}_clicks")
        source.run(COLUMNS, topic=self.clicks, watermark=watermark)
        view = UpsertKafkaRelation.create(schema="default", identifier=source.relation.identifier, type=RelationType.View)
        parsed = options.parse("kafka_source", "clicks", {"topic": self.clicks, "watermark": watermark})
        clicks = StreamSource("clicks", view, parsed, KafkaSettings(self.broker))
        return replace(found, sql=found.sql.replace("{clicks}", clicks.view), sources=(*found.sources, clicks))


def _at(second: int, user: int) -> Message:
    return Message({"user_id": user, "region": f"user {user}", "viewtime": f"2026-11-18 00:00:{second:02}"})


def test_streams_are_joined_when_rows_are_final(
    spark: SparkSession, broker: str, topic_name: str, schema_name: str, tmp_path: Path
) -> None:
    stream = TwoStreams(spark, broker, topic_name, schema_name, tmp_path)
    stream.source_options["watermark"] = {"viewtime": "1 second"}
    stream.spark.sql("SELECT 1L AS user_id, 'Ann' AS name").createOrReplaceTempView("names")
    stream.sql = (
        "SELECT v.region, c.user_id AS clicked, names.name, v.viewtime FROM {views} v LEFT JOIN {{clicks}} c ON v.user_id = "
        "c.user_id AND c.viewtime BETWEEN v.viewtime AND v.viewtime + INTERVAL 5 SECONDS "
        "LEFT JOIN names ON names.user_id = v.user_id"
    )
    options: dict[str, Any] = {
        "sequence_by": "viewtime",
        "on_duplicate_key": "latest",
        "exclude_columns": "viewtime",
        **EXACTLY_ONCE,
    }
    write(broker, stream.views, [_at(0, 1), _at(1, 2)])
    write(broker, stream.clicks, [_at(3, 1)])
    stream.run(**options)
    assert stream.table() == {"user 1": {"region": "user 1", "clicked": 1, "name": "Ann"}}
    # User 2 has not clicked when both watermarks have passed.
    for topic in (stream.views, stream.clicks):
        write(broker, topic, [_at(30, 3)])
    stream.run(**options)
    assert stream.table()["user 2"] == {"region": "user 2", "clicked": None, "name": None}
    assert stream.table()["user 3"]["clicked"] == 3


@pytest.mark.nightly
def test_sessions_are_written_when_they_are_final(stream: StreamTable) -> None:
    stream.source_options["watermark"] = {"viewtime": "1 second"}
    session = "session_window(viewtime, '5 seconds')"
    stream.sql = f"SELECT region, session_window.start AS begin, count(*) AS pv FROM {{views}} GROUP BY region, {session}"
    options: dict[str, Any] = {"unique_key": ["region", "begin"], **EXACTLY_ONCE}
    write(stream.broker, stream.views, [_at(second, 1) for second in (0, 3, 7, 20)])
    stream.run(**options)
    assert [json.loads(value)["pv"] for value in stream.latest().values()] == [3]
    write(stream.broker, stream.views, [_at(second, 1) for second in (22, 40)])
    stream.run(**options)
    assert sorted(json.loads(value)["pv"] for value in stream.latest().values()) == [2, 3]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"unique_key": "user_id"}, "has a unique_key, so its rows are the last record of each key"),
        (
            {"scan_bounded_mode": "timestamp", "scan_bounded_timestamp_millis": 1},
            "scan_bounded_mode=timestamp, and a stream has no",
        ),
        ({"scan_startup_mode": "group-offsets", "properties": {"group.id": "g"}}, "starts at the offsets of a consumer group"),
    ],
    ids=["upsert", "bounded", "group-offsets"],
)
def test_sources_that_are_no_streams_are_refused(stream: StreamTable, source: dict[str, Any], message: str) -> None:
    stream.source_options |= source
    with pytest.raises(OptionsError, match=message) as refused:
        pipeline.publish(stream.model())
    assert len(str(refused.value.msg).splitlines()) == 1
    assert stream.state_record() is None


def test_stream_without_a_state_topic_is_refused(stream: StreamTable, tmp_path: Path) -> None:
    stream.send([(1, "a")])
    stream.expose_source()
    model = stream.model()
    with pytest.raises(StateError, match=r"`state_topic: none`\. Nothing was written") as refused:
        pipeline.publish(replace(model, request=replace(model.request, state=StateSettings(NO_STATE))))
    assert len(str(refused.value.msg).splitlines()) == 1
    assert list(tmp_path.iterdir()) == [] and stream.topic not in _topics(stream)


def _topics(stream: StreamTable) -> list[str]:
    admin = KafkaAdminClient(bootstrap_servers=stream.broker)
    try:
        return list(admin.list_topics())
    finally:
        admin.close()


def _grow(stream: StreamTable, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=stream.broker)
    try:
        admin.create_partitions({stream.topic: partitions})
    finally:
        admin.close()


@pytest.mark.parametrize("materialization", ["upsert_kafka", pytest.param("kafka", marks=pytest.mark.nightly)])
def test_keys_stay_in_their_partition_when_partitions_are_added(stream: StreamTable, materialization: str) -> None:
    stream.materialization, stream.sql = materialization, VIEWS
    config: dict[str, Any] = {"exclude_columns": ["kafka_partition", "kafka_offset"], **EXACTLY_ONCE}
    if materialization == "kafka":
        config |= {"sink_partitioner": "round-robin"}
    stream.send([(1, "a"), (2, "b")])
    stream.run(**config)
    _grow(stream, 5)
    stream.send([(3, "a")])
    if materialization == "kafka":
        assert stream.run(**config).written == 1
        return
    end = stream.end()
    with pytest.raises(GuardError, match=r"number of partitions changed since the stream began.*--full-refresh"):
        stream.run(**config)
    assert stream.end() == end


@pytest.mark.parametrize("guarantee", ["at-least-once", pytest.param("exactly-once", marks=pytest.mark.nightly)])
def test_message_that_is_too_large_is_refused_with_its_batch(stream: StreamTable, guarantee: str) -> None:
    large = "array_join(transform(sequence(1, 100000), n -> md5(cast(n AS string))), '')"
    stream.sql = f"SELECT region, {large} AS pv, kafka_partition, kafka_offset FROM {{views}}"
    config = {"exclude_columns": ["kafka_partition", "kafka_offset"], "sink_delivery_guarantee": guarantee}
    stream.send([(1, "a")])
    with pytest.raises(UpsertKafkaError, match=r"max\.message\.bytes") as refused:
        stream.run(**config)
    assert len(str(refused.value.msg).splitlines()) == 1
    assert stream.records() == []
