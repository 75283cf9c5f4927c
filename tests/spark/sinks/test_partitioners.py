"""Partitioners: keys in the topic keep their partition; a custom function is checked before anything is written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka.errors import DeliveryError, OptionsError
from dbt.adapters.upsert_kafka.sinks import partitioners
from dbt.adapters.upsert_kafka.sinks.partitioners import Partitioner, load, place

NO_FUNCTION: dict[str, int] = {}


def by_length(key: bytes | None, value: bytes | None, partitions: int) -> int:
    return len(key or b"") % partitions


def too_far(key: bytes | None, value: bytes | None, partitions: int) -> int:
    return partitions if key == b"k3" else 0


def in_words(key: bytes | None, value: bytes | None, partitions: int) -> str:
    return "first"


def records(spark: SparkSession, rows: list[tuple[bytes | None, int | None]], tasks: int = 1) -> DataFrame:
    frame = spark.createDataFrame([(key, b"v", partition) for key, partition in rows], "key binary, value binary, partition int")
    return frame.repartition(tasks).localCheckpoint()


def places(frame: DataFrame) -> dict[bytes | None, int | None]:
    return {None if row.key is None else bytes(row.key): row.partition for row in frame.collect()}


def custom(function: str) -> Partitioner:
    return load("custom", f"{__name__}.{function}")


def test_default_partitioner_is_left_to_the_sink(spark: SparkSession) -> None:
    assert places(place(records(spark, [(b"a", None)]), Partitioner(), 7)) == {b"a": None}


@pytest.mark.parametrize("kind", ["default", "fixed", "round-robin", "custom"])
def test_key_in_the_topic_keeps_its_partition(spark: SparkSession, kind: str) -> None:
    partitioner = custom("by_length") if kind == "custom" else Partitioner(kind)
    known = [(f"k{i}".encode(), i % 3) for i in range(30)]
    assert places(place(records(spark, [*known, (b"new", None)]), partitioner, 5)).items() >= set(known)


def test_round_robin_spreads_records_without_a_key_evenly(spark: SparkSession) -> None:
    frame = place(records(spark, [(None, None)] * 40), Partitioner("round-robin"), 4)
    assert Counter(row.partition for row in frame.collect()) == {0: 10, 1: 10, 2: 10, 3: 10}


def test_round_robin_uses_partitions_in_turn(spark: SparkSession) -> None:
    frame = place(records(spark, [(f"k{i}".encode(), None) for i in range(12)]), Partitioner("round-robin"), 5)
    assert [row.partition for row in frame.collect()] == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]


def test_fixed_writes_each_task_to_one_partition(spark: SparkSession) -> None:
    frame = place(records(spark, [(f"k{i}".encode(), None) for i in range(60)], tasks=3), Partitioner("fixed"), 2)
    by_task: dict[int, set[int]] = {}
    for row in frame.selectExpr("spark_partition_id() AS task", "partition").collect():
        by_task.setdefault(row.task, set()).add(row.partition)
    assert by_task == {0: {0}, 1: {1}, 2: {0}}


def test_custom_function_decides_for_new_keys(spark: SparkSession) -> None:
    frame = place(records(spark, [(b"a", None), (b"ab", None), (b"abc", 0), (None, None)]), custom("by_length"), 3)
    assert places(frame) == {b"a": 1, b"ab": 2, b"abc": 0, None: 0}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("too_far", r"'.*too_far' returned 4 for key b'k3': the topic has partitions 0 to 3. Nothing was written."),
        ("in_words", r"'.*in_words' failed for key b'k\d': TypeError: 'str' object cannot be .* Nothing was written."),
    ],
)
def test_bad_result_of_a_custom_function_is_reported_with_the_key(spark: SparkSession, function: str, message: str) -> None:
    rows: list[tuple[bytes | None, int | None]] = [(f"k{i}".encode(), None) for i in range(5)]
    with pytest.raises(DeliveryError, match=message):
        place(records(spark, rows), custom(function), 4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module.function", r"sink_partitioner_class 'no_such_module.function' can't be imported \(ModuleNotFoundError"),
        (f"{__name__}.no_such_function", r"can't be imported \(AttributeError"),
        ("function", r"can't be imported \(ValueError"),
        (f"{__name__}.NO_FUNCTION", r"is a dict, not a function\(key, value, partitions\)"),
    ],
)
def test_custom_function_that_cannot_be_imported_is_an_options_error(name: str, message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        load("custom", name)


def test_custom_function_is_imported_from_the_project_folder(tmp_path: Path) -> None:
    (tmp_path / "placing.py").write_text("def last(key, value, partitions):\n    return partitions - 1\n")
    loaded = load("custom", "placing.last", tmp_path)
    assert loaded.function is not None and loaded.function(b"", b"", 6) == 5
    assert str(tmp_path) not in partitioners.sys.path
