"""The samples of a preview: the messages themselves, whatever the format, and no value of a masked column."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import DataFrame

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.publish.preview import Preview, Sample, lines
from tests.tables import Table

ANN, BOB, CEM = (1, "ann"), (2, "bob"), (3, "cem")
CHANGED = [(1, "an"), CEM]


def previewed(table: Table, rows: Any, **config: Any) -> Preview:
    found: list[Preview] = []
    table.publish(rows, mode="preview", report=found.append, **config)
    [preview] = found
    return preview


@pytest.mark.parametrize(
    "value_format",
    [
        "json",
        "avro",
        "avro-confluent",
        pytest.param("json-schema-confluent", marks=pytest.mark.nightly),
    ],
)
def test_values_are_decoded(table: Table, value_format: str, registry: str) -> None:
    config: dict[str, Any] = {"value_format": value_format, "registry": {"url": registry}}
    table.publish([ANN, BOB], **config)
    before = table.end()
    preview = previewed(table, CHANGED, **config)
    assert preview.samples == (
        Sample("insert", {"id": 3}, None, {"id": 3, "name": "cem"}),
        Sample("update", {"id": 1}, {"id": 1, "name": "ann"}, {"id": 1, "name": "an"}, ("name",)),
        Sample("delete", {"id": 2}, {"id": 2, "name": "bob"}, None),
    )
    assert preview.messages == 3
    # The planned schema is not registered yet, and its id is not part of the digest.
    wider = "SELECT 1 AS id, 'an' AS name, true AS is_new"
    planned = previewed(table, wider, **config)
    assert planned.samples[0].old == {"id": 1, "name": "ann"}
    assert planned.columns.added == ("is_new",)
    assert table.end() == before
    assert table.publish(wider, planned=planned.fingerprint, **config).records == planned.messages == 2


@pytest.mark.parametrize(
    "value_format", [pytest.param("csv", marks=pytest.mark.nightly), "json", pytest.param("avro", marks=pytest.mark.nightly)]
)
def test_masked_columns_are_nowhere(table: Table, value_format: str) -> None:
    config: dict[str, Any] = {"value_format": value_format, "plan_mask": ["name"]}
    table.publish([ANN, BOB], **config)
    preview = previewed(table, [*CHANGED, CEM], max_deletes=0, **config)
    text = repr(preview) + "\n".join(lines(preview))
    assert preview.refusals and not any(name in text for name in ("ann", "'an'", "bob", "cem"))
    assert [sample.key for sample in preview.samples] == [{"id": 1}, {"id": 2}]
    # The masked column had another name before.
    renamed = previewed(table, "SELECT 1 AS id, 'an' AS nick", value_format=value_format, plan_mask=["nick"])
    assert "ann" not in repr(renamed) and "'an'" not in repr(renamed)
    # A key is masked too, also in the messages of guards.
    with pytest.raises(GuardError) as refused:
        table.publish([ANN, ANN], unique_key="name", full_refresh=True, **config)
    assert "(masked)" in str(refused.value) and "ann" not in str(refused.value)
    # Keys of an earlier layout, and of other writers, may have the values of masked columns.
    table.publish([ANN, BOB], unique_key="name", full_refresh=True, **config)
    table.write_by_hand((b"ann@example", b"{}", 0))
    for more in ({"full_refresh": True}, {"unique_key": "name", "foreign_keys": "delete"}, {"unique_key": "name"}):
        text = previewed_text(table, [(1, "x"), (3, "y")], **{"max_deletes": 0, **more}, **config)
        shown = [name for name in ("ann", "bob", "616E6E") if name in text]
        assert not shown and "(masked)" in text, text


def previewed_text(table: Table, rows: Any, **config: Any) -> str:
    """Everything that a preview shows."""
    found = previewed(table, rows, **config)
    return repr(found) + "\n".join(lines(found))


@pytest.mark.parametrize("mask", [(), ("name",)])
def test_events_of_cdc_formats_are_shown_as_they_are_sent(table: Table, mask: tuple[str, ...]) -> None:
    table.materialization = "kafka"
    config: dict[str, Any] = {"value_format": "debezium-json", **({"plan_mask": list(mask)} if mask else {})}
    table.publish([ANN, BOB], **config)
    before = table.end()
    samples = {sample.kind: sample for sample in previewed(table, CHANGED, **config).samples}
    table.publish(CHANGED, **config)
    sent = [json.loads(record.value or b"") for record in table.new_records(before)]
    shown = [samples["insert"].new, samples["update"].first, samples["update"].new, samples["delete"].new]
    if mask:
        assert "ann" not in repr(samples) and "bob" not in repr(samples)
        sent = json.loads(re.sub(r'"name": "\w+"', '"name": "(masked)"', json.dumps(sent)))
    assert sorted(map(repr, shown)) == sorted(map(repr, sent))
    assert samples["delete"].new["before"]["id"] == 2 and samples["delete"].new["op"] == "d"
    assert samples["update"].old["after"]["id"] == 1


def test_topic_is_read_once_for_all_samples(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.publish([ANN, BOB])
    reads: list[DataFrame] = []
    collect = type(table.spark.range(1)).collect

    def counted(frame: DataFrame) -> Any:
        if "KafkaRelation" in frame._jdf.queryExecution().toString():  # Spark's name of a read of a topic
            reads.append(frame)
        return collect(frame)

    monkeypatch.setattr(type(table.spark.range(1)), "collect", counted)
    assert previewed(table, CHANGED, samples=0).samples == ()
    without_samples = len(reads)
    reads.clear()
    assert {sample.kind for sample in previewed(table, CHANGED).samples} == {"insert", "update", "delete"}
    assert len(reads) == without_samples + 1


def test_exactly_once_run_sends_what_was_planned(table: Table) -> None:
    exactly_once = {"sink_delivery_guarantee": "exactly-once"}
    table.publish([ANN, BOB], **exactly_once)
    planned = previewed(table, CHANGED, **exactly_once)
    before = table.end()
    assert table.publish(CHANGED, planned=planned.fingerprint, **exactly_once).records == planned.messages == 3
    assert len(table.new_records(before)) == 3
    after = table.end()
    with pytest.raises(GuardError, match="is not as it was planned: the topic was written to"):
        table.publish(CHANGED, planned=planned.fingerprint, **exactly_once)
    assert table.end() == after


def test_update_in_mode_retract_is_two_messages(table: Table) -> None:
    table.publish([ANN], update_mode="retract")
    found = previewed(table, [(1, "an")], update_mode="retract")
    assert (found.messages, found.samples[0].first) == (2, "(tombstone)")
    assert any('-> (tombstone), then {"id":1,"name":"an"}' in line for line in lines(found))


def test_old_value_is_the_last_of_its_partition(table: Table, broker: str) -> None:
    """Timestamps are set by producers and may not be in the order of the writes."""
    table.publish([ANN])
    [partition] = [record.partition for record in table.records()]
    producer = KafkaProducer(bootstrap_servers=broker)
    value = b'{"id":1,"name":"written last"}'
    producer.send(table.topic, key=b'{"id":1}', value=value, partition=partition, timestamp_ms=1000).get(timeout=30)
    producer.close()
    [sample] = previewed(table, [(1, "an")]).samples
    assert sample.old == {"id": 1, "name": "written last"}


def test_all_refusals_and_the_counts(table: Table) -> None:
    table.publish([ANN, BOB])
    before = table.end()
    other = table.owner.__class__("shop", "prod", table.schema, "users")
    preview = previewed(table, [CEM, CEM, (None, "x")], owner=other, max_deletes=1, on_schema_change="fail")
    assert len(preview.refusals) == 4, preview.refusals
    assert "is owned by" in preview.refusals[0]
    assert (preview.counts["delete"], preview.counts["duplicate"], preview.counts["null_key"]) == (2, 2, 1)
    assert table.end() == before
