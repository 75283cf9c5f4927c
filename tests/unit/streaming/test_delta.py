"""Delta tables as streams: their settings, and what is reported when Delta Lake ends a stream."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.streaming import delta, sources
from dbt.adapters.upsert_kafka.streaming.delta import DeltaTable
from dbt.adapters.upsert_kafka.streaming.sources import StreamSource
from dbt.adapters.upsert_kafka.streaming.start import START_OVER

RELATION = UpsertKafkaRelation.create(schema="lake", identifier="orders")


def _node(**meta: Any) -> dict[str, Any]:
    return {"name": "orders", "config": {"meta": meta}}


def test_settings_are_in_the_meta_of_the_source() -> None:
    found = delta.of_node("m", RELATION, _node(watermark={"at": "2 seconds"}, skip_change_commits=True))
    assert found == DeltaTable(RELATION, {"at": timedelta(seconds=2)}, skips_changes=True)
    assert delta.of_node("m", RELATION, {"name": "orders", "config": {}, "meta": {}}) == DeltaTable(RELATION)


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"watermark": {"at": "soon"}}, "watermark in the meta of orders must be a duration"),
        ({"watermark": "2 seconds"}, "watermark in the meta of orders must be a map of one column"),
        ({"skip_change_commits": "yes"}, "skip_change_commits in the meta of orders must be true or false, not 'yes'"),
    ],
)
def test_wrong_settings_are_refused(meta: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        delta.of_node("m", RELATION, _node(**meta))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[DELTA_SOURCE_TABLE_IGNORE_CHANGES] Detected a data update (for example part-0) in the source table at version 7.",
            "rows of the Delta table lake.orders were updated or deleted in version 7, and a stream reads appended rows only.",
        ),
        ("[DELTA_SOURCE_IGNORE_DELETE] Detected deleted data", "lake.orders were updated or deleted, and"),
        (
            "x\n[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change in version 3",
            "the columns of the Delta table lake.orders",
        ),
        ("[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE] The streaming query", "lake.orders can't be read on (DIFFERENT_"),
    ],
)
def test_errors_of_delta_become_one_line_with_the_remedy(text: str, message: str) -> None:
    found = delta.failure("m", [DeltaTable(RELATION)], text, START_OVER)
    # The next start reads the new columns. The others would fail again.
    assert isinstance(found, GuardError) is ("SCHEMA" not in text)
    assert found is not None
    assert message in str(found.msg) and "--full-refresh" in str(found.msg) and len(str(found.msg).splitlines()) == 1


def test_other_errors_are_left_to_others() -> None:
    assert delta.failure("m", [DeltaTable(RELATION)], "[DIVIDE_BY_ZERO] Division by zero", START_OVER) is None
    assert delta.failure("m", [], "[DELTA_SOURCE_IGNORE_DELETE]", START_OVER) is None


def test_positions_in_delta_tables_are_no_offsets_of_topics() -> None:
    parsed = options.parse("kafka_source", "views", {"topic_pattern": ".*"})
    source = StreamSource("views", RELATION, parsed, KafkaSettings("b:1"))
    assert sources.of_source(source, {"delta:5f0c": {4: -1}, "views": {0: 3}}) == {"views": {0: 3}}
