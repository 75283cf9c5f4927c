from __future__ import annotations

import pytest

from dbt.adapters.upsert_kafka.column import UpsertKafkaColumn


@pytest.mark.parametrize(
    ("type_name", "is_so"),
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
def test_a_type_of_spark_is_what_dbt_calls_so(type_name: str, is_so: str | None) -> None:
    column = UpsertKafkaColumn("c", type_name)
    questions = ("is_string", "is_integer", "is_numeric", "is_float")
    assert [question for question in questions if getattr(column, question)()] == ([is_so] if is_so else [])
    assert column.is_number() == (is_so not in (None, "is_string"))
    assert not column.can_expand_to(column)
