"""Schemas of a registry without columns are refused in one line. tests/spark/formats/test_avro.py reads the values of others."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, TimestampType

from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.errors import SchemaRegistryError
from dbt.adapters.upsert_kafka.formats import Field, Side, avro

NANOS = '{"type": "record", "name": "r", "fields": [{"name": "t", "type": {"type": "long", "logicalType": "timestamp-nanos"}}]}'


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ('"string"', 'is not an Avro record: "string". Only records have columns'),
        ('["null", "int"]', "is not an Avro record"),
        ('{"type": "object", "properties": {}}', "is not an Avro record"),
        ('syntax = "proto3";\nmessage User {}', 'is not an Avro record: syntax = "proto3"; message User {}'),
        (NANOS, "has timestamp-nanos, which Spark does not read"),
    ],
)
def test_schema_that_can_not_be_read_is_one_line(schema: str, problem: str) -> None:
    side = Side("key", "orders", (Field("t", "t", TimestampType(), True),), {})
    with pytest.raises(SchemaRegistryError) as refused:
        avro.read_body("payload", side, True, schema)
    assert f"Topic 'orders': a registered schema of the key {problem}" in refused.value.msg and "\n" not in refused.value.msg


def test_given_schema_that_is_no_record_is_refused() -> None:
    given = {"schema": '"string"', "subject_name_strategy": "RecordNameStrategy", "schema_references": [{"name": "a"}]}
    side = Side("key", "orders", (Field("k", "k", StringType(), True),), given)
    [problem] = formats.get("avro-confluent").problems(side)
    assert "names the subject of the key after its record" in problem
