"""Which plans are streams, in which mode their rows are written, and watermarks; without a broker."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.streaming import plan
from dbt.adapters.upsert_kafka.streaming.plan import StreamPlan
from dbt.adapters.upsert_kafka.streaming.watermarks import with_watermark

DELAY = {"at": timedelta(seconds=2)}
BY_SEQUENCE = {"sequence_by": "at", "on_duplicate_key": "latest"}


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """A session with the streams `views`, `clicks` and `late`, which has no watermark, and the table `users`."""
    found = spark.newSession()
    rows = (
        found.readStream.format("rate").load().selectExpr("value AS id", "cast(value % 3 AS string) AS region", "timestamp AS at")
    )
    for name in ("views", "clicks"):
        with_watermark(rows, DELAY, "kafka_source views").createOrReplaceTempView(name)
    rows.createOrReplaceTempView("late")
    found.sql("SELECT 1L AS id, 'ann' AS name").createOrReplaceTempView("users")
    return found


def _checked(session: SparkSession, sql: str, key: str | list[str], **config: Any) -> StreamPlan:
    parsed = options.parse("upsert_kafka", "m", {"unique_key": key, "trigger": "available-now", **config})
    return plan.checked("m", session.sql(sql), parsed)


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_join_with_a_static_table_is_stateless(session: SparkSession, join: str) -> None:
    found = _checked(session, f"SELECT v.id, name, at FROM views v {join} users u ON v.id = u.id", "id", **BY_SEQUENCE)
    assert (found.output_mode, found.is_stateless, found.is_unique) == ("Update", True, False)


def test_join_with_a_static_table_below_and_above_an_aggregate(session: SparkSession) -> None:
    below = "SELECT name, count(*) AS n FROM views v JOIN users u ON v.id = u.id GROUP BY name"
    found = _checked(session, below, "name")
    assert (found.output_mode, found.is_stateless, found.is_unique) == ("Update", False, True)
    above = "SELECT c.id, n, name FROM (SELECT id, count(*) AS n FROM views GROUP BY id) c {} JOIN users u ON c.id = u.id"
    found = _checked(session, above.format("LEFT"), "id")
    assert (found.output_mode, found.is_unique) == ("Update", False)
    with pytest.raises(OptionsError, match="a join above an aggregate leaves the old value"):
        _checked(session, above.format("INNER"), "id")


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN"])
def test_join_of_two_streams_writes_final_rows(session: SparkSession, join: str) -> None:
    sql = f"SELECT v.id, v.at FROM views v {join} clicks c ON v.id = c.id AND c.at BETWEEN v.at AND v.at + INTERVAL 5 SECONDS"
    found = _checked(session, sql, "id", **BY_SEQUENCE)
    assert (found.output_mode, found.is_stateless, found.is_unique) == ("Append", False, False)


def test_outer_join_of_streams_needs_a_watermark(session: SparkSession) -> None:
    with pytest.raises(OptionsError, match="watermark") as refused:
        _checked(session, "SELECT v.id, v.at FROM late v LEFT JOIN late c ON v.id = c.id", "id", **BY_SEQUENCE)
    assert len(str(refused.value.msg).splitlines()) == 1


def test_session_window_writes_final_rows(session: SparkSession) -> None:
    sql = "SELECT region, session_window.start AS begin, count(*) AS n FROM {} GROUP BY region, session_window(at, '5 seconds')"
    found = _checked(session, sql.format("views"), ["region", "begin"])
    assert (found.output_mode, found.is_stateless, found.is_unique) == ("Append", False, True)
    with pytest.raises(OptionsError, match="needs a watermark on the kafka_source"):
        _checked(session, sql.format("late"), ["region", "begin"])


@pytest.mark.parametrize("materialization", ["upsert_kafka", "kafka"])
def test_session_window_of_all_events_is_refused(session: SparkSession, materialization: str) -> None:
    sql = "SELECT session_window.start AS begin, count(*) AS n FROM views GROUP BY session_window(at, '5 seconds')"
    parsed = options.parse(materialization, "m", {"unique_key": "begin", "trigger": "available-now"})
    with pytest.raises(OptionsError, match="add a column of the events to GROUP BY"):
        plan.checked("m", session.sql(sql), parsed)


def _types(frame: DataFrame) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def test_watermark_on_a_timestamp_without_time_zone_is_cast(session: SparkSession) -> None:
    rows = session.sql("SELECT id, cast(at AS timestamp_ntz) AS `at` FROM late")
    assert _types(rows)["at"] == "timestamp_ntz"
    found = with_watermark(rows, {"AT": timedelta(seconds=2)}, "kafka_source views")
    assert _types(found) == {"id": "bigint", "at": "timestamp"}
    found.createOrReplaceTempView("cast_views")
    sql = "SELECT window.start AS begin, count(*) AS n FROM cast_views GROUP BY window(at, '5 seconds')"
    parsed = options.parse("kafka", "m", {"trigger": "available-now"})
    # A window is final only if the stream has a watermark.
    assert plan.checked("m", session.sql(sql), parsed).output_mode == "Append"


@pytest.mark.parametrize(
    ("column", "message"),
    [("region", "column region of the kafka_source views has type string"), ("seen", "has no column seen, its columns are id, ")],
)
def test_watermark_on_other_columns_is_refused(session: SparkSession, column: str, message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        with_watermark(session.table("late"), {column: timedelta(seconds=2)}, "kafka_source views")
