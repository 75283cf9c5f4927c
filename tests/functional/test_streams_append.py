"""Streams of `kafka` models: each event is appended once, SELECT DISTINCT writes each row once, windows when they are final."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError
from tests.dbt_project import Project
from tests.documented import DOCS, File, steps
from tests.functional.streams import VIEWS, StreamTable
from tests.functional.topic_writer import Message, write
from tests.services import delete_topic, read_topic

EXACTLY_ONCE = {"sink_delivery_guarantee": "exactly-once"}
PAIRS = "SELECT DISTINCT region, user_id FROM {views}"


@pytest.fixture
def stream(spark: SparkSession, broker: str, topic_name: str, schema_name: str, tmp_path: Path) -> StreamTable:
    table = StreamTable(spark, broker, topic_name, schema_name, tmp_path)
    table.materialization = "kafka"
    table.options = {"trigger": "available-now"}
    table.sql = "SELECT region, user_id FROM {views}"
    return table


def appended(stream: StreamTable) -> list[tuple[str, int]]:
    """The values of all messages, read by an independent client."""
    rows = [json.loads(record.value or b"") for record in stream.records()]
    return sorted((row["region"], row["user_id"]) for row in rows)


def test_events_are_appended_once_and_a_repeated_batch_is_not(stream: StreamTable, tmp_path: Path) -> None:
    stream.send((user, "east") for user in range(10))
    stream.crash_after_delivery(**EXACTLY_ONCE)
    assert len(appended(stream)) == 10
    repeated = stream.run(**EXACTLY_ONCE)
    assert (repeated.repeated, repeated.written, len(appended(stream))) == (1, 0, 10)
    # A stateless stream continues without its checkpoint, at the offsets of the state record.
    shutil.rmtree(tmp_path / stream.topic)
    stream.send([(10, "west")])
    streamed = stream.run(**EXACTLY_ONCE)
    assert (streamed.events, streamed.written) == (1, 1)
    assert streamed._message == f"topic {stream.topic}: 1 event, 1 appended"
    assert appended(stream) == sorted([*((("east", user)) for user in range(10)), ("west", 10)])
    assert {row[:2] for row in stream.view()} == set(appended(stream))
    # It is killed again, after Spark has created the next checkpoint and before its first batch.
    shutil.rmtree(tmp_path / stream.topic)
    stream.send([(11, "west")])
    stream.crash_before_first_batch(**EXACTLY_ONCE)
    assert stream.run(**EXACTLY_ONCE).events == 1
    assert set(Counter(appended(stream)).values()) == {1} and len(appended(stream)) == 12
    # Without the state record it is not known what was appended.
    end = stream.end()
    stream.forget()
    with pytest.raises(GuardError, match=r"state record of topic .* is lost.*--full-refresh"):
        stream.run(**EXACTLY_ONCE)
    assert stream.end() == end
    # Everything again, and nothing is deleted.
    assert stream.run(**EXACTLY_ONCE, full_refresh=True).written == 12
    assert set(Counter(appended(stream)).values()) == {2}


def test_sources_with_a_pattern_and_without(stream: StreamTable) -> None:
    stream.source_options = {"topic_pattern": f"{stream.views}(-[a-z]+)?"}
    stream.others["orders"] = {"topic": f"{stream.topic}-orders"}
    stream.sql = "SELECT region, user_id FROM {views} UNION ALL SELECT region, user_id FROM {orders}"

    def write_to(topic: str, *users: int) -> None:
        write(stream.broker, topic, [Message({"user_id": user, "region": "b"}) for user in users])

    stream.send([(1, "a")])
    write_to(f"{stream.topic}-orders", 2)
    stream.run(**EXACTLY_ONCE)
    assert appended(stream) == [("a", 1), ("b", 2)]
    # A topic that the pattern finds later.
    write_to(f"{stream.views}-late", 3)
    stream.run(**EXACTLY_ONCE)
    assert appended(stream) == [("a", 1), ("b", 2), ("b", 3)]
    end = stream.end()
    delete_topic(stream.broker, f"{stream.views}-late")
    write_to(f"{stream.views}-late", 4, 5, 6)
    with pytest.raises(GuardError, match=r"source topic '.*-late' was deleted and created again"):
        stream.run(**EXACTLY_ONCE)
    stream.others["orders"] = {"topic": stream.views}
    with pytest.raises(OptionsError, match="views and orders both read a topic"):
        stream.run(**EXACTLY_ONCE, full_refresh=True)
    assert stream.end() == end


def test_select_distinct_appends_each_row_once(stream: StreamTable, tmp_path: Path) -> None:
    stream.sql = PAIRS
    stream.send([(1, "a"), (1, "a"), (2, "a"), (1, "b")])
    assert stream.run(**EXACTLY_ONCE).written == 3
    stream.send([(1, "a"), (2, "b"), (2, "b"), (1, "b")])
    assert stream.run(**EXACTLY_ONCE).written == 1
    assert appended(stream) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    end = stream.end()
    stream.send([(3, "a")])
    # The rows that it knows are in the checkpoint.
    shutil.rmtree(tmp_path / stream.topic)
    with pytest.raises(GuardError, match=r"checkpoint .* is gone.*Delete the topic before"):
        stream.run(**EXACTLY_ONCE)
    assert stream.end() == end


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT region, count(*) AS user_id FROM {views} GROUP BY region", "materialized='upsert_kafka'"),
        ("SELECT region, user_id FROM {views} LIMIT 3", "LIMIT"),
        ("SELECT region, user_id FROM {views} ORDER BY region", "ORDER BY"),
    ],
    ids=["aggregate", "limit", "order by"],
)
def test_what_is_never_final_is_refused(stream: StreamTable, sql: str, message: str, tmp_path: Path) -> None:
    stream.send([(1, "a")])
    stream.sql = sql
    with pytest.raises(OptionsError, match=message) as refused:
        stream.run()
    assert len(str(refused.value.msg).splitlines()) == 1
    assert list(tmp_path.iterdir()) == [] and stream.state_record() is None


@pytest.mark.nightly
def test_windows_are_appended_when_they_are_final(stream: StreamTable) -> None:
    stream.source_options["watermark"] = {"viewtime": "2 seconds"}
    stream.sql = (
        "SELECT cast(window.start AS string) AS region, count(*) AS user_id FROM {views} "
        "GROUP BY window(viewtime, '10 seconds') HAVING count(*) > 1"
    )
    stream.send((1, "a") for _ in range(25))  # the seconds 0 to 24
    stream.run()
    assert appended(stream) == [("2026-11-18 00:00:00", 10), ("2026-11-18 00:00:10", 10)]
    stream.send((1, "a") for _ in range(10))  # the seconds 25 to 34
    stream.run()
    assert appended(stream)[-1] == ("2026-11-18 00:00:20", 10)


@pytest.mark.nightly
def test_driver_does_not_write_what_explode_made_large(stream: StreamTable, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.sql = "SELECT region, user_id * 300 + n AS user_id FROM {views} LATERAL VIEW explode(sequence(0, 299)) AS n"

    def refuse(*_: object) -> None:
        raise AssertionError("the driver writes the records")

    monkeypatch.setattr("dbt.adapters.upsert_kafka.sinks.driver.DriverSink.deliver", refuse)
    stream.send((user, "a") for user in range(100))
    assert stream.run(**EXACTLY_ONCE).written == 30_000
    assert appended(stream) == [("a", number) for number in range(30_000)]


@pytest.mark.nightly
def test_keys_partitioners_and_guards(stream: StreamTable) -> None:
    stream.sql = VIEWS
    options: dict[str, Any] = {"unique_key": "region", "sink_partitioner": "round-robin"}
    stream.send([(1, "a"), (2, "a"), (3, "a"), (4, "a")])
    # The columns of the source that the relation of the model has too.
    with pytest.raises(OptionsError, match="metadata column kafka_partition, kafka_offset itself"):
        stream.run(**options)
    assert stream.state_record() is None
    options["exclude_columns"] = ["kafka_partition", "kafka_offset"]
    stream.run(**options)
    assert {record.partition for record in stream.records()} == {0, 1}
    assert {record.key for record in stream.records()} == {b'{"region":"a"}'}
    end = stream.end()
    stream.send([(5, None)])  # type: ignore[list-item]
    with pytest.raises(GuardError, match="NULL in a column of unique_key"):
        stream.run(**options)
    assert stream.end() == end
    assert stream.run(**options, on_null_key="drop", full_refresh=True).dropped == 1


@pytest.mark.nightly
def test_topics_of_others_of_batch_runs_and_deleted_topics(stream: StreamTable) -> None:
    stream.send([(1, "a")])
    write(stream.broker, stream.topic, [Message({"region": "z", "user_id": 0})])
    # Records of others stay as they are.
    assert stream.run(**EXACTLY_ONCE).written == 1
    assert appended(stream) == [("a", 1), ("z", 0)]
    rows = stream.spark.createDataFrame([("b", 2)], "region string, user_id long")
    stream.publish(rows, trigger="batch", **EXACTLY_ONCE)
    end = stream.end()
    with pytest.raises(GuardError, match="was not published by a stream"):
        stream.run(**EXACTLY_ONCE)
    assert stream.end() == end
    delete_topic(stream.broker, stream.topic)
    assert stream.run(**EXACTLY_ONCE).written == 1
    assert appended(stream) == [("a", 1)]


SOURCE = {
    "models/pageviews.sql": "{{ config(materialized='kafka_source', topic=var('views')) }}\nselect * from {{ kafka_topic() }}",
    "models/schema.yml": """
models:
  - {name: pageviews, columns: [{name: user_id, data_type: bigint}, {name: user_region, data_type: string}]}
""",
}


def test_two_models_count_distinct_users(dbt_project: Callable[..., Project], broker: str, topic_name: str) -> None:
    documented = {step.path: step.text for step in steps(DOCS / "streams.md") if isinstance(step, File)}
    assert documented.keys() == {"models/region_users.sql", "models/users_per_region.sql"}
    project = dbt_project({**SOURCE, **documented})
    schema = project.profile["schema"]
    views = ("--vars", json.dumps({"views": topic_name}))

    def run(users: list[int]) -> dict[str, int]:
        write(broker, topic_name, [Message({"user_id": user, "user_region": f"region {user % 2}"}) for user in users])
        project.succeed("run", *views)
        rows = [json.loads(record.value or b"") for record in read_topic(broker, f"{schema}.users_per_region")]
        return {row["user_region"]: row["uv"] for row in rows}

    with project.one_process():
        assert run([*range(10), *range(10)]) == {"region 0": 5, "region 1": 5}
        assert run([0, 1, 2, 100]) == {"region 0": 6, "region 1": 5}
        assert len(read_topic(broker, f"{schema}.region_users")) == 11
