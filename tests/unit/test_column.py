"""The kinds of Spark's types, as dbt asks for them."""

from __future__ import annotations

import pytest

from dbt.adapters.upsert_kafka.column import UpsertKafkaColumn


@pytest.mark.parametrize(
    ("type_name", "kind"),
    [
        ("string", "is_string"),
        ("varchar(20)", "is_string"),
        ("TINYINT", "is_integer"),
        ("int", "is_integer"),
        ("bigint", "is_integer"),
        ("decimal(38,0)", "is_numeric"),
        ("double", "is_float"),
        ("array<int>", None),
        ("timestamp_ntz", None),
    ],
)
def test_spark_type_has_its_kind(type_name: str, kind: str | None) -> None:
    column = UpsertKafkaColumn("c", type_name)
    kinds = ("is_string", "is_integer", "is_numeric", "is_float")
    assert [name for name in kinds if getattr(column, name)()] == ([kind] if kind else [])
    assert column.is_number() == (kind not in (None, "is_string"))
    assert not column.can_expand_to(column)
