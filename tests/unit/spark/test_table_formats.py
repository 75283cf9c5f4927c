"""A node that needs MERGE is refused, with the line of the profile, unless its format has it."""

from __future__ import annotations

from typing import Any

import pytest

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.spark import table_formats

KEYED = {"materialized": "incremental", "unique_key": "id"}


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("snapshot", {}, "snapshot orders: a snapshot needs Delta Lake, and file_format is parquet. Add the line"),
        ("model", {**KEYED, "incremental_strategy": "merge"}, "model orders: incremental_strategy 'merge' needs Delta Lake"),
        ("model", KEYED, "rows would only be added. Add the line `file_format: delta` to the target in profiles.yml. If"),
    ],
)  # fmt: skip
def test_format_without_merge_is_refused(kind: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError) as error:
        table_formats.set_defaults(kind, "orders", dict(config), None)
    assert message in error.value.msg


@pytest.mark.parametrize(
    ("config", "profile", "after"),
    [
        ({}, "delta", {"file_format": "delta"}),
        ({"file_format": "orc"}, "delta", {"file_format": "orc"}),
        (KEYED, "delta", {**KEYED, "file_format": "delta", "incremental_strategy": "merge"}),
        ({**KEYED, "incremental_strategy": "append"}, None, {**KEYED, "incremental_strategy": "append"}),
        ({"materialized": "incremental"}, None, {"materialized": "incremental"}),
        ({**KEYED, "file_format": "iceberg"}, None, {**KEYED, "file_format": "iceberg"}),
    ],
)
def test_defaults_of_a_node(config: dict[str, Any], profile: str | None, after: dict[str, Any]) -> None:
    found = dict(config)
    table_formats.set_defaults("model", "orders", found, profile)
    assert found == after


def test_unknown_format_names_the_line_if_it_is_delta() -> None:
    text = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: {}. Make sure the provider name is correct"
    explained = table_formats.explain(RuntimeError(text.format("delta")))
    assert explained is not None and table_formats.REMEDY in explained
    assert table_formats.explain(RuntimeError(text.format("paimon"))) is None
