"""Streams on a real broker: each run publishes what is new, exactly once, or is refused with the topic untouched."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError, UpsertKafkaError
from dbt.adapters.upsert_kafka.publish.contracts import Check
from dbt.adapters.upsert_kafka.state.keeper import LEASES
from dbt.adapters.upsert_kafka.streaming import pipeline
from dbt.adapters.upsert_kafka.streaming.checkpoints import Checkpoint
from dbt.adapters.upsert_kafka.streaming.rows import BatchRecords, Counts
from tests.functional.streams import VIEWS, StreamTable
from tests.functional.topic_writer import Message, write
from tests.services import delete_topic, end_offsets

LAST_VIEW = {"exclude_columns": ["kafka_partition", "kafka_offset"]}


@pytest.fixture
def stream(spark: SparkSession, broker: str, topic_name: str, schema_name: str, tmp_path: Path) -> StreamTable:
    return StreamTable(spark, broker, topic_name, schema_name, tmp_path)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_second_run_reads_new_events_and_writes_touched_keys_only(stream: StreamTable, guarantee: str) -> None:
    stream.send((user, f"region {user % 20}") for user in range(1000))
    first = stream.run(sink_delivery_guarantee=guarantee)
    assert (first.events, first.written, len(stream.table())) == (1000, 20, 20)
    assert stream.table() == stream.batch_result()

    end = stream.end()
    stream.send((user, f"region {user % 2}") for user in range(5000, 5010))
    second = stream.run(sink_delivery_guarantee=guarantee)
    assert (second.events, second.written) == (10, 2)
    assert len(stream.new_records(end)) == 2
    assert stream.table() == stream.batch_result()

    end = stream.end()
    third = stream.run(sink_delivery_guarantee=guarantee)
    assert (third.events, third.written, stream.end()) == (0, 0, end)


@pytest.mark.nightly
def test_hundred_events_after_a_hundred_thousand_cost_a_hundred(stream: StreamTable) -> None:
    stream.send([(0, "region 0")])
    rows = stream.spark.range(1, 100_000).selectExpr(
        "to_json(named_struct('user_id', id, 'region', concat('region ', id % 5000), 'viewtime', '2026-11-18 00:00:00')) AS value"
    )
    rows.write.format("kafka").options(**{"kafka.bootstrap.servers": stream.broker, "topic": stream.views}).save()
    first = stream.run(sink_delivery_guarantee="exactly-once")
    assert (first.events, first.written) == (100_000, 5_000)
    end, before = stream.end(), end_offsets(stream.broker, stream.views)

    stream.send((user, f"region {user % 10}") for user in range(200_000, 200_100))
    second = stream.run(sink_delivery_guarantee="exactly-once")
    # Spark's progress, the messages in the topic, and the offsets of the state record.
    assert (second.events, second.written) == (100, 10)
    assert len(stream.new_records(end)) == 10
    record = stream.state_record()
    assert record is not None and record.stream is not None
    after = record.stream.offsets[stream.views]
    assert sum(after.values()) - sum(before.values()) == 100
    assert stream.table() == stream.batch_result()


def test_batch_that_spark_repeats_is_computed_and_not_written_again(stream: StreamTable) -> None:
    stream.send((user, "east") for user in range(10))
    stream.crash_after_delivery(sink_delivery_guarantee="exactly-once")
    end = stream.end()
    assert stream.table()["east"]["pv"] == 10
    repeated = stream.run(sink_delivery_guarantee="exactly-once")
    assert (repeated.repeated, repeated.written, stream.end()) == (1, 0, end)
    # The state of the repeated batch was kept.
    stream.send([(1, "east"), (100, "east")])
    stream.run(sink_delivery_guarantee="exactly-once")
    assert stream.table() == {"east": {"region": "east", "pv": 12, "uv": 11}} == stream.batch_result()


def test_second_process_is_refused_and_writes_nothing(stream: StreamTable, tmp_path: Path) -> None:
    stream.send([(1, "a")])
    stream.run(sink_delivery_guarantee="exactly-once")
    model = stream.model(sink_delivery_guarantee="exactly-once")
    analysed, layout = pipeline.analyse(model)
    with model.request.kafka.admin() as admin:
        slow = pipeline.begin(model, analysed, layout, admin)
        stream.send([(2, "a")])
        shutil.copytree(tmp_path / stream.topic, tmp_path / "copy")
        stream.run(sink_delivery_guarantee="exactly-once")
        end = stream.end()
        # The first process continues with its own copy of the checkpoint, as on another machine.
        slow.checkpoint = Checkpoint.of(stream.spark, (tmp_path / "copy").as_uri(), "", slow.stream.query)
        with pytest.raises(PySparkException):
            pipeline.start_query(model, slow, availableNow=True).awaitTermination()
    assert "another run has published" in str(slow.error)
    assert stream.end() == end and stream.table()["a"]["pv"] == 2


def test_late_record_of_a_suspended_process_is_fenced(stream: StreamTable) -> None:
    options = {"sink_delivery_guarantee": "exactly-once"}
    stream.send([(1, "a")])
    stream.run(**options)
    model = replace(stream.model(**options), is_continuous=True)
    analysed, layout = pipeline.analyse(model)
    with model.request.kafka.admin() as admin, closing(pipeline.begin(model, analysed, layout, admin)) as slow:
        record = stream.state_record()
        assert record is not None and record.stream is not None and record.stream.lease is not None
        LEASES.release(model.request.kafka, stream.topic)
        check = slow.check_record

        def suspended() -> None:
            check()
            # Meanwhile another process publishes two batches.
            for user in (2, 3):
                stream.send([(user, "a")])
                stream.run(**options)

        slow.check_record = suspended  # type: ignore[method-assign]
        records: Any = None
        with pytest.raises(UpsertKafkaError):
            slow.write(BatchRecords(records, Counts(1)), replace(slow.stream, batch=slow.stream.batch + 1))
    record = stream.state_record()
    assert record is not None and record.stream is not None
    assert (record.stream.batch, record.stream.lease) == (2, None)
    stream.send([(4, "a")])
    assert stream.run(**options).events == 1
    assert stream.table() == stream.batch_result()


def test_last_event_per_key_by_offset_and_delete_when(stream: StreamTable) -> None:
    stream.sql = VIEWS
    options: dict[str, Any] = {**LAST_VIEW, "delete_when": "user_id < 0"}
    stream.send([(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "c"), (6, "c")], partitions=1)
    stream.run(**options)
    assert {region: row["user_id"] for region, row in stream.table().items()} == {"a": 3, "b": 4, "c": 6}
    assert stream.table()["a"].keys() == {"user_id", "region", "viewtime"}
    stream.send([(-1, "a"), (7, "b"), (-1, "b"), (-1, "c"), (8, "c")], partitions=1)
    streamed = stream.run(**options)
    assert {region: row["user_id"] for region, row in stream.table().items()} == {"c": 8}
    assert (streamed.written, streamed.deleted) == (1, 2)
    assert [row[:2] for row in stream.view()] == [(8, "c")]


def test_windows_with_a_watermark_are_updated_and_late_events_dropped(stream: StreamTable) -> None:
    stream.source_options["watermark"] = {"viewtime": "2 seconds"}
    stream.sql = (
        "SELECT cast(window.start AS string) AS region, count(*) AS pv FROM {views} GROUP BY window(viewtime, '10 seconds')"
    )
    stream.send((1, "a") for _ in range(25))  # the seconds 0 to 24
    with pytest.raises(OptionsError, match="groups by window"):
        stream.run()
    stream.sql = "SELECT window.start AS region, count(*) AS pv FROM {views} GROUP BY window(viewtime, '10 seconds')"
    stream.run()
    assert [row["pv"] for row in stream.table().values()] == [10, 10, 5]
    stream.sent = 5
    stream.send([(1, "a")] * 2)  # late: the window from 0 to 10 is closed
    stream.sent = 25
    stream.send([(1, "a")])
    stream.run()
    assert [row["pv"] for row in stream.table().values()] == [10, 10, 6]


def test_full_refresh_of_a_source_that_starts_at_the_end_is_refused(stream: StreamTable) -> None:
    stream.send([(1, "a")])
    stream.run()
    end = stream.end()
    stream.source_options["scan_startup_mode"] = "latest-offset"
    with pytest.raises(GuardError, match="would read nothing and delete every key"):
        stream.run(full_refresh=True)
    assert stream.end() == end


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT region, count(DISTINCT user_id) AS uv FROM {views} GROUP BY region", "count_distinct"),
        ("SELECT region, count(*) AS pv FROM {views} GROUP BY region HAVING count(*) > 1", "delete_when"),
        ("WITH c AS (SELECT region, count(*) AS pv FROM {views} GROUP BY region) SELECT * FROM c WHERE pv > 1", "delete_when"),
        ("SELECT region, user_id, kafka_partition, kafka_offset FROM {views} ORDER BY region", "ORDER BY"),
        ("SELECT region, user_id, kafka_partition, kafka_offset FROM {views} LIMIT 3", "LIMIT"),
        ("SELECT region, row_number() OVER (PARTITION BY region ORDER BY viewtime) AS n FROM {views}", "row_number"),
        ("SELECT region, user_id, count(*) AS pv FROM {views} GROUP BY region, user_id", "groups by user_id"),
        ("SELECT upper(region) AS region, count(*) AS pv FROM {views} GROUP BY region", "groups by region"),
        ("SELECT region, user_id FROM {views}", "sequence_by"),
        ("SELECT region, user_id FROM {views} WHERE region IN (SELECT region FROM {views})", "subquery"),
        ("SELECT 'a' AS region", "reads no stream"),
    ],
    ids=lambda text: text if " " not in text else "",
)
def test_what_can_not_be_a_stream_is_refused_before_anything_starts(
    stream: StreamTable, sql: str, message: str, tmp_path: Path
) -> None:
    stream.send([(1, "a")])
    stream.sql = sql
    with pytest.raises(OptionsError, match=message) as refused:
        stream.run()
    assert len(str(refused.value.msg).splitlines()) == 1
    assert list(tmp_path.iterdir()) == [] and stream.state_record() is None


def test_check_constraints_are_refused(stream: StreamTable) -> None:
    stream.send([(1, "a")])
    with pytest.raises(OptionsError, match="`check` constraints"):
        stream.run(checks=(Check("pv > 0", None),))
    assert stream.state_record() is None


def test_change_events_are_change_rows(stream: StreamTable) -> None:
    stream.source_options["value_format"] = "debezium-json"
    sign = "if(row_kind IN ('+I', '+U'), 1, -1)"
    stream.sql = f"SELECT region, sum({sign}) AS pv, sum({sign} * user_id) AS uv FROM {{views}} GROUP BY region"
    one, two = ({"user_id": user, "region": "a", "viewtime": "2026-11-18 00:00:00"} for user in (1, 2))

    def send(*changes: dict[str, Any]) -> None:
        write(stream.broker, stream.views, [Message(change) for change in changes])

    send({"before": None, "after": one, "op": "c"}, {"before": None, "after": two, "op": "c"})
    stream.run()
    assert stream.table() == {"a": {"region": "a", "pv": 2, "uv": 3}}
    send({"before": two, "after": {**two, "user_id": 5}, "op": "u"}, {"before": one, "after": None, "op": "d"})
    assert stream.run().events == 2
    assert stream.table() == {"a": {"region": "a", "pv": 1, "uv": 5}}


@pytest.mark.nightly
def test_filter_on_the_grouping_columns_is_a_stream(stream: StreamTable) -> None:
    stream.sql = "SELECT region, count(*) AS pv FROM {views} GROUP BY region HAVING region <> 'b'"
    stream.send([(1, "a"), (2, "b"), (3, "a")])
    stream.run()
    assert stream.table() == {"a": {"region": "a", "pv": 2}}


@pytest.mark.parametrize(
    ("sql", "options", "message"),
    [
        (VIEWS, {**LAST_VIEW}, "NULL in a column of unique_key"),
        (
            "SELECT region, n, kafka_partition, kafka_offset FROM {views} LATERAL VIEW explode(array(1, 2)) AS n",
            {"on_null_key": "drop"},
            "one row for each key",
        ),
        (VIEWS, {**LAST_VIEW, "on_null_key": "drop", "not_null": ("user_id",)}, "not_null constraint"),
    ],
    ids=["null key", "two rows of an event", "not_null"],
)
def test_guards_refuse_a_batch_and_leave_the_topic_untouched(
    stream: StreamTable, sql: str, options: dict[str, Any], message: str
) -> None:
    stream.sql = VIEWS
    stream.send([(1, "a")])
    stream.run(**LAST_VIEW)
    end = stream.end()
    stream.send([(2, "b"), (None, "c"), (3, None)])  # type: ignore[list-item]
    stream.sql = sql
    refresh = sql != VIEWS or "on_null_key" in options
    with pytest.raises(UpsertKafkaError, match=message):
        stream.run(**options, full_refresh=refresh)
    assert stream.end() == end


def test_changed_definition_is_refused_until_full_refresh(stream: StreamTable, warnings: list[str]) -> None:
    stream.send([(1, "a"), (2, "b"), (3, "c")])
    stream.run(sink_delivery_guarantee="exactly-once")
    end = stream.end()
    with pytest.raises(GuardError, match=r"session time zone changed since the stream began\. It was UTC; .*--full-refresh"):
        stream.run(sink_delivery_guarantee="exactly-once", time_zone="Europe/Berlin")
    stream.sql += " -- another text"
    with pytest.raises(GuardError, match=r"the SELECT changed since the stream began.*--full-refresh"):
        stream.run(sink_delivery_guarantee="exactly-once")
    stream.sql = "SELECT region, count(*) AS pv FROM {views} WHERE region <> 'c' GROUP BY region"
    with pytest.raises(GuardError, match="SELECT, columns or formats changed"):
        stream.run(sink_delivery_guarantee="exactly-once", value_format="csv")
    assert (stream.end(), warnings) == (end, [])
    refreshed = stream.run(sink_delivery_guarantee="exactly-once", full_refresh=True)
    assert (refreshed.events, refreshed.written, refreshed.deleted) == (3, 2, 1)
    [announced] = warnings
    assert "change for consumers (removed: uv): consumers find no value under the old names." in announced
    assert stream.table() == {"a": {"region": "a", "pv": 1}, "b": {"region": "b", "pv": 1}}
    # The next run continues after the refresh.
    stream.send([(4, "c"), (5, "a")])
    assert stream.run(sink_delivery_guarantee="exactly-once").events == 2
    assert stream.table()["a"]["pv"] == 2


def test_lost_checkpoint_of_an_aggregate_is_refused(stream: StreamTable, tmp_path: Path) -> None:
    stream.send([(1, "a")])
    stream.run()
    end = stream.end()
    shutil.rmtree(tmp_path / stream.topic)
    stream.send([(2, "a")])
    with pytest.raises(GuardError, match=r"checkpoint .* is gone.*--full-refresh"):
        stream.run()
    assert stream.end() == end
    stream.run(full_refresh=True)
    assert stream.table() == stream.batch_result()


def test_stateless_stream_continues_without_its_checkpoint(stream: StreamTable, tmp_path: Path) -> None:
    stream.sql = VIEWS
    stream.send([(1, "a"), (2, "b")])
    stream.run(**LAST_VIEW, sink_delivery_guarantee="exactly-once")
    shutil.rmtree(tmp_path / stream.topic)
    stream.send([(3, "a")])
    streamed = stream.run(**LAST_VIEW, sink_delivery_guarantee="exactly-once")
    assert (streamed.events, streamed.written) == (1, 1)
    assert {region: row["user_id"] for region, row in stream.table().items()} == {"a": 3, "b": 2}


def test_old_copy_of_a_checkpoint_is_refused(stream: StreamTable, tmp_path: Path) -> None:
    stream.send([(1, "a")])
    stream.run()
    shutil.copytree(tmp_path / stream.topic, tmp_path / "copy")
    for user in (2, 3):
        stream.send([(user, "a")])
        stream.run()
    end = stream.end()
    shutil.rmtree(tmp_path / stream.topic)
    (tmp_path / "copy").rename(tmp_path / stream.topic)
    stream.send([(4, "a")])
    with pytest.raises(GuardError, match="old copy"):
        stream.run()
    assert stream.end() == end


def test_deleted_topic_is_published_from_the_start(stream: StreamTable) -> None:
    stream.send([(1, "a"), (2, "b")])
    stream.run()
    delete_topic(stream.broker, stream.topic)
    stream.send([(3, "a")])
    assert stream.run().events == 3
    assert stream.table() == stream.batch_result()


def test_recreated_source_topic_is_refused(stream: StreamTable) -> None:
    stream.send([(1, "a"), (2, "b")])
    stream.run()
    end = stream.end()
    delete_topic(stream.broker, stream.views)
    stream.send([(3, "a"), (4, "a"), (5, "a")])
    with pytest.raises(GuardError, match=r"source topic .* was deleted and created again"):
        stream.run()
    assert stream.end() == end


@pytest.mark.nightly
def test_topic_of_batch_runs_is_refused_until_full_refresh(stream: StreamTable) -> None:
    stream.send([(1, "a")])
    stream.expose_source()
    rows = stream.spark.createDataFrame([("a", 5, 5), ("z", 1, 1)], "region string, pv long, uv long")
    stream.publish(rows, trigger="batch")
    end = stream.end()
    with pytest.raises(GuardError, match=r"was not published by a stream.*--full-refresh"):
        stream.run()
    assert stream.end() == end
    assert stream.run(full_refresh=True).deleted == 1
    assert stream.table() == stream.batch_result()
