"""Models on each broker of a row of the matrix. `make matrix` starts the brokers; other runs have the tests' own broker only."""

from __future__ import annotations

import os

import pytest
from pyspark.sql import SparkSession

from tests.counts import counts
from tests.tables import Table

# `2.8.2=127.0.0.1:9092,…`
BROKERS = dict(entry.split("=") for entry in os.environ.get("UPSERT_KAFKA_TEST_BROKERS", "").split(",") if entry)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("version", BROKERS or ["own"])
def test_topic_equals_the_select(
    spark: SparkSession, request: pytest.FixtureRequest, topic_name: str, schema_name: str, version: str, guarantee: str
) -> None:
    table = Table(spark, BROKERS.get(version) or request.getfixturevalue("broker"), topic_name, schema_name)
    table.options["sink_delivery_guarantee"] = guarantee
    assert counts(table.publish([(i, "a") for i in range(100)])) == (100, 0, 0, 0)
    assert counts(table.publish([(i, "b" if i < 10 else "a") for i in range(50)])) == (0, 10, 50, 40)
    assert table.view() == [(i, "b" if i < 10 else "a") for i in range(50)]
    assert len(table.records()) == 160
