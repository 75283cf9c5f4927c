"""The view of a topic has the last record of each key, wherever its records are, and Spark shuffles no more than it needs."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.tables import Table, json_key, json_value


def test_view_has_the_last_record_of_each_key_wherever_it_is(spark: SparkSession, table: Table) -> None:
    table.publish([(1, "ann"), (2, "bob"), (3, "cem"), (4, "dan")])
    key, value = json_key, json_value
    before = table.records()
    other = {record.key: 1 - record.partition for record in before}
    table.write_by_hand(
        (key(1), value((1, "older")), other[key(1)]),
        (key(1), value((1, "newer")), other[key(1)]),  # in two partitions: the latest value
        (key(2), None, other[key(2)]),  # a value counts before a tombstone in another partition
        (key(3), None, 1 - other[key(3)]),  # deleted where it is
        (key(5), value((5, "eve")), 0),
        (key(5), None, 1),
        (key(5), None, 0),  # deleted in both
    )
    assert table.view() == [(1, "newer"), (2, "bob"), (4, "dan")]
    ids = spark.sql(f"SELECT id FROM {table.relation}")
    assert sorted(row.id for row in ids.collect()) == [1, 2, 4]
    assert spark.sql(f"SELECT count(*) AS n FROM {table.relation}").collect()[0].n == 3
    plan = spark.sql(f"SELECT id FROM {table.relation}")._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange ") == 1, f"the view needs more than one exchange:\n{plan}"
    assert plan.count("Sort [") == 1, f"the view needs more than one sort:\n{plan}"


def test_condition_on_columns_parses_each_record_once(spark: SparkSession, table: Table) -> None:
    table.publish([(1, "ann"), (2, None)])
    filtered = spark.sql(f"SELECT id FROM {table.relation} WHERE name IS NULL AND length(id) < 9 OR name = 'x'")
    plan = filtered._jdf.queryExecution().executedPlan().toString()
    assert plan.count("from_json(") == 1, plan
    assert [row.id for row in filtered.collect()] == [2]


def test_record_that_another_partition_replaces_may_be_unreadable(spark: SparkSession, table: Table) -> None:
    table.publish([(1, "ann")])
    [record] = table.records()
    table.write_by_hand((json_key(1), b"not json", 1 - record.partition))
    table.write_by_hand((json_key(1), json_value((1, "bob")), record.partition))
    assert table.view() == [(1, "bob")]


def test_counting_the_rows_of_a_view_shuffles_no_values(spark: SparkSession, table: Table) -> None:
    table.publish([(1, "ann")])
    count = spark.sql(f"SELECT count(*) FROM {table.relation}")
    plan = count._jdf.queryExecution().executedPlan().toString()
    [below] = [line for line in plan.splitlines() if "xxhash64(key" in line]
    assert ", value#" not in below.replace("isnotnull(value#", ""), plan


def test_column_in_key_and_value_is_read_from_the_value(table: Table) -> None:
    """As in Flink. Another writer's value may not have the id of its key, and a test `unique` finds that."""
    table.publish([(1, "ann")])
    table.write_by_hand((json_key(2), json_value((1, "bob")), 0), (b"not json", json_value((3, "cem")), 0))
    assert table.view() == [(1, "ann"), (1, "bob"), (3, "cem")]
