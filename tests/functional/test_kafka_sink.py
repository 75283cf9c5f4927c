"""The materialization `kafka`: appended events, update modes, and change events as Flink writes them."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError
from tests.conformance.test_flink_change_events import FLINK
from tests.counts import counts
from tests.services import Record
from tests.tables import Table, json_key, json_value


class Events(Table):
    """A `kafka` model, by default without a key."""

    materialization = "kafka"

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.options = {}

    def shown(self, columns: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in self.spark.sql(f"SELECT {columns} FROM `{self.schema}`.users").collect())


@pytest.fixture
def events(spark: SparkSession, broker: str, topic_name: str, schema_name: str) -> Events:
    return Events(spark, broker, topic_name, schema_name, partitions=1)


def bytes_of(records: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


def test_every_run_appends_its_rows_and_view_has_all_records(events: Events) -> None:
    assert counts(events.publish([(1, "a")], headers={"run": "'first'"})) == (1,)
    assert events.publish([(1, "a"), (None, "b")]).appended == 2
    records = events.records()
    assert bytes_of(records[:1]) == [(None, json_value((1, "a")))]
    assert sorted(bytes_of(records[1:])) == [(None, json_value((1, "a"))), (None, json_value((None, "b")))]
    assert records[0].headers == [("run", b"first")] and records[1].headers == []
    assert events.shown("name, kafka_partition, kafka_offset")[0] == ("a", 0, 0)
    assert len(events.shown("name")) == 3


def test_key_may_be_excluded_from_value(events: Events) -> None:
    config: dict[str, Any] = {
        "unique_key": "id",
        "key_format": "raw",
        "value_format": "csv",
        "value_fields_include": "EXCEPT_KEY",
    }
    events.publish([("k", "a"), ("k", "b")], columns="id string, name string", **config)
    assert sorted(bytes_of(events.records())) == [(b"k", b"a"), (b"k", b"b")]
    assert events.shown("id, name") == [("k", "a"), ("k", "b")]


def test_null_key_is_refused_or_dropped(events: Events) -> None:
    with pytest.raises(
        GuardError, match=r"(?s)1 row has NULL in a column of unique_key .id.. Set on_null_key='drop'.*Nothing was written"
    ):
        events.publish([(1, "a"), (None, "b")], unique_key="id")
    appended = events.publish([(1, "a"), (None, "b")], unique_key="id", on_null_key="drop")
    assert (appended.appended, appended.dropped) == (1, 1)
    assert bytes_of(events.records()) == [(json_key(1), json_value((1, "a")))]


def test_failing_select_appends_nothing(events: Events) -> None:
    events.publish([(1, "a")])
    with pytest.raises(Exception, match="stop here"):
        events.publish("SELECT id, if(id = 99999, raise_error('stop here'), 'x') AS name FROM range(100000) AS t(id)")
    assert len(events.records()) == 1


def test_record_timestamp_is_written(events: Events) -> None:
    config: dict[str, Any] = {"sink_delivery_guarantee": "exactly-once", "record_timestamp": "at", "exclude_columns": ["at"]}
    events.publish("SELECT id, timestamp_millis(1700000000000 + id) AS at FROM range(3)", **config)
    assert sorted(record.timestamp for record in events.records()) == [1700000000000, 1700000000001, 1700000000002]
    assert events.shown("id, unix_millis(kafka_timestamp)")[0] == (0, 1700000000000)


def test_retract_writes_tombstone_before_new_value(events: Events) -> None:
    config = {"unique_key": "id", "update_mode": "retract"}
    events.publish([(1, "a"), (2, "b")], **config)
    before = events.end()
    assert counts(events.publish([(1, "c")], **config)) == (0, 1, 1, 0)
    new = bytes_of(events.new_records(before))
    assert [value for key, value in new if key == json_key(1)] == [None, json_value((1, "c"))]
    assert [value for key, value in new if key == json_key(2)] == [None]


def image(id: int, name: str) -> str:
    return f'{{"id":{id},"name":"{name}"}}'


ENVELOPES = {
    "debezium-json": ('{{"before":null,"after":{0},"op":"c"}}', '{{"before":{0},"after":null,"op":"d"}}'),
    "canal-json": ('{{"data":[{0}],"type":"INSERT"}}', '{{"data":[{0}],"type":"DELETE"}}'),
}


@pytest.mark.parametrize("format", ENVELOPES)
def test_change_events_have_old_row(format: str, events: Events) -> None:
    added, removed = ENVELOPES[format]
    config: dict[str, Any] = {"unique_key": "id", "format": format}

    def values(records: list[Record], id: int) -> list[str]:
        return [record.value.decode() for record in records if record.key == json_key(id) and record.value is not None]

    assert counts(events.publish([(1, "a"), (2, "b"), (3, "c")], **config)) == (3, 0, 0, 0)
    assert values(events.records(), 1) == [added.format(image(1, "a"))]
    before = events.end()
    assert counts(events.publish([(1, "A"), (2, "b")], **config)) == (0, 1, 1, 1)
    new = events.new_records(before)
    assert values(new, 1) == [removed.format(image(1, "a")), added.format(image(1, "A"))]
    assert (values(new, 2), values(new, 3)) == ([], [removed.format(image(3, "c"))])
    # A deleted row is inserted again, and unchanged rows write nothing.
    assert counts(events.publish([(1, "A"), (2, "b"), (3, "d")], **config)) == (1, 0, 0, 2)
    assert counts(events.publish([(1, "A"), (2, "b"), (3, "d")], **config)) == (0, 0, 0, 3)
    kinds = [kind for kind, id in events.shown("row_kind, id") if id == 1]
    assert kinds == ["+I", "+I", "-D"]


@pytest.mark.parametrize("format", FLINK["changes"])
def test_change_events_equal_flinks_bytes(format: str, events: Events) -> None:
    config: dict[str, Any] = {"unique_key": "id", "format": format}
    events.publish([(1, "a"), (2, "b")], **config)
    events.publish([(1, "A")], allow_empty=True, **config)
    ours = [[str(record.key, "utf-8"), str(record.value, "utf-8")] for record in events.records() if record.key and record.value]
    for key in ('{"id":1}', '{"id":2}'):
        assert [value for k, value in ours if k == key] == [value for k, value in FLINK["changes"][format] if k == key]
    assert len(ours) == len(FLINK["changes"][format])


def test_update_mode_and_cdc_format_without_unique_key_are_refused(events: Events) -> None:
    for config in ({"update_mode": "upsert"}, {"format": "debezium-json"}):
        with pytest.raises(OptionsError, match="needs unique_key"):
            events.publish([(1, "a")], **config)


def test_exactly_once_run_is_one_transaction(events: Events) -> None:
    config: dict[str, Any] = {
        "sink_delivery_guarantee": "exactly-once",
        "sink_partitioner": "round-robin",
        "headers": {"by": "name"},
    }
    appended = events.publish([(1, "a"), (2, "b")], **config)
    assert (appended.appended, appended.records, appended.transactional_id) == (2, 2, f"dbt-upsert-kafka.{events.topic}")
    assert sorted(bytes_of(events.records())) == [(None, json_value((1, "a"))), (None, json_value((2, "b")))]
    with pytest.raises(Exception, match="stop here"):
        events.publish("SELECT id, if(id = 99999, raise_error('stop here'), 'x') AS name FROM range(100000) AS t(id)", **config)
    assert events.publish([(3, "c")], **config).appended == 1
    assert [record.headers for record in events.records()][-1] == [("by", b"c")]
    assert len(events.records()) == len(events.shown("id")) == 3
