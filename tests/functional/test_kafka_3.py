"""Models on a broker of Kafka 3.3, the oldest that needs no ZooKeeper, with both delivery guarantees."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.counts import counts
from tests.services import Cluster
from tests.tables import Table


@pytest.fixture(scope="module")
def kafka_3() -> Iterator[str]:
    with Cluster(version="3.3.2") as cluster:
        yield cluster.bootstrap_servers


@pytest.mark.nightly
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_topic_equals_the_select(spark: SparkSession, kafka_3: str, topic_name: str, schema_name: str, guarantee: str) -> None:
    table = Table(spark, kafka_3, topic_name, schema_name)
    table.options["sink_delivery_guarantee"] = guarantee
    assert counts(table.publish([(i, "a") for i in range(100)])) == (100, 0, 0, 0)
    assert counts(table.publish([(i, "b" if i < 10 else "a") for i in range(50)])) == (0, 10, 50, 40)
    assert table.view() == [(i, "b" if i < 10 else "a") for i in range(50)]
    assert len(table.records()) == 160
