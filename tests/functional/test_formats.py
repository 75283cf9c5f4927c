"""Formats with a real broker: a view returns the rows of any SELECT, and rows that Flink wrote are not written again."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from kafka import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.formats import Field, Side
from tests.conformance.test_flink_vectors import CASES, IMPOSSIBLE, identity, rows_sql
from tests.property_tests import NIGHTLY
from tests.tables import Table
from tests.tables_of_any_type import data_types, structs, values

ROWS, EXAMPLES = 6, 6 if NIGHTLY else 2
IS_KEY = ("k1", "k2")
MANY_COLUMNS = 2
# The conformance tests check the bytes of every case. Here a few cases are enough: only the way to the topic is tested.
REPLAYED = [
    case
    for case in CASES
    if "records" in case
    and (case["format"], case["name"]) not in IMPOSSIBLE
    and (len(case["column_names"]) > MANY_COLUMNS or case["name"] in ("string", "double", "decimal_10_2"))
]


@pytest.mark.parametrize("include", ["ALL", pytest.param("EXCEPT_KEY", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("format_name", ["json", "csv", "avro", "avro-confluent"])
def test_view_returns_the_rows_and_types_of_any_select(
    spark: SparkSession, broker: str, registry: str, topic_name: str, schema_name: str, format_name: str, include: str
) -> None:
    number = itertools.count()

    # A failing example is not shrunk: each try is a run of a model, which takes seconds.
    @settings(max_examples=EXAMPLES, phases=[Phase.generate])
    @given(data=st.data())
    def any_select(data: st.DataObject) -> None:
        rows = data.draw(frames(spark, format_name))
        table = Table(spark, broker, f"{topic_name}-{next(number)}", schema_name)
        config: dict[str, Any] = {"format": format_name, "value_fields_include": include, "unique_key": ["k2", "k1"]}
        if format_name == "avro":
            config["avro_timestamp_mapping_legacy"] = False
        if format_name == "avro-confluent":
            config["avro_confluent_url"] = registry
        assert table.publish(rows, **config).inserted == ROWS

        view = spark.table(f"`{schema_name}`.users")
        assert [(f.name, f.dataType.simpleString()) for f in view.schema] == [
            (f.name, f.dataType.simpleString()) for f in rows.schema
        ]
        assert contents(view) == contents(rows)
        assert table.publish(rows, **config).unchanged == ROWS

    any_select()


@st.composite
def frames(draw: st.DrawFn, spark: SparkSession, format_name: str) -> DataFrame:
    """Rows of random columns. The key consists of an integer and a column of a random type."""
    members = draw(structs(format_name, data_types(format_name), 4)).fields
    columns = [f for f in members if f.name.lower() not in IS_KEY]
    columns[1:1] = [StructField("k1", IntegerType()), StructField("k2", draw(data_types(format_name, 0)))]
    fields = tuple(Field(f.name, f.name, f.dataType) for f in columns)
    assume(not formats.get(format_name).problems(Side("value", "any", fields, {"timestamp_mapping_legacy": False})))
    rows = []
    for i in range(ROWS):
        cells = {f.name: draw(values(f.dataType, format_name, key=f.name in IS_KEY)) for f in columns}
        rows.append(tuple({**cells, "k1": i}.values()))
    return spark.createDataFrame(rows, StructType(columns))


def contents(frame: DataFrame) -> list[Any]:
    """The rows, ordered by the key."""
    return [comparable(tuple(row)) for row in frame.orderBy("k1").collect()]


def comparable(value: Any) -> Any:
    """The value as text, so that -0.0 differs from 0.0 and NaN equals NaN. The order of map entries is ignored."""
    if isinstance(value, dict):
        return sorted((key, comparable(member)) for key, member in value.items())
    return [comparable(member) for member in value] if isinstance(value, (list, tuple)) else repr(value)


@pytest.mark.parametrize("case", [pytest.param(case, id=identity(case)) for case in REPLAYED])
def test_rows_that_flink_wrote_are_unchanged(case: dict[str, Any], table: Table) -> None:
    admin = KafkaAdminClient(bootstrap_servers=table.broker)
    admin.create_topics({table.topic: {"num_partitions": 2, "replication_factor": 1, "configs": {"cleanup.policy": "compact"}}})
    admin.close()
    table.write_by_hand(*[(bytes.fromhex(key), bytes.fromhex(value), i % 2) for i, (key, value) in enumerate(case["records"])])
    before = table.end()
    clause = {"connector": "upsert-kafka", "key.format": case["format"], "value.format": case["format"], **case["options"]}
    clause["value.fields-include"] = case["value_fields_include"]

    publication = table.publish(rows_sql(case), unique_key=case["unique_key"], with_options=clause)

    assert (publication.unchanged, publication.records) == (len(case["records"]), 0)
    assert table.end() == before


@pytest.mark.parametrize("format_name", ["json", "csv", "avro"])
def test_undecodable_record_fails_the_view_or_is_skipped(table: Table, format_name: str) -> None:
    table.options["format"] = format_name
    table.publish([(1, "a")])
    table.write_by_hand((b"\xff", b'\xff\xffno such row"', 0))
    where = f"Topic {table.topic}, partition 0, offset {table.end()[0] - 1}: the value is not {format_name} "
    with pytest.raises(Exception, match=where + "with the columns of this model: .*Set ignore_parse_errors=true"):
        table.view()
    raw = table.spark.table(f"`{table.schema}__kafka`.users__topic")
    assert raw.count() == 2

    publication = table.publish([(1, "a"), (2, "b")], ignore_parse_errors=True)

    assert (publication.inserted, publication.unchanged, publication.deleted, publication.foreign) == (1, 1, 0, 1)
    assert table.view() == [(1, "a"), (2, "b")]
    assert raw.count() == 3
