"""What exactly-once costs: the requests of one run, counted by a proxy between the broker and all clients, Spark's included."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from tests.faults.proxy import proxied_cluster
from tests.tables import Table

NAMES = {0: "Produce", 2: "ListOffsets", 10: "FindCoordinator", 22: "InitProducerId", 24: "AddPartitionsToTxn", 26: "EndTxn"}
"""Requests whose number depends neither on time nor on the amount of data."""
PARTITIONS, TASKS = 4, 2
ROWS = [(i, "old") for i in range(100)]
CHANGED = [(i, "new") for i in range(100)]
MOST = {
    "unchanged": {"InitProducerId": 1, "FindCoordinator": 1, "ListOffsets": 7},
    "changed": {
        # To recover what a killed run left, and to open the transaction.
        "InitProducerId": 2,
        # The driver twice, and each task.
        "FindCoordinator": 2 + TASKS,
        # Each task, the driver for the state record, and the broker itself, which verifies the first batch of each partition.
        "AddPartitionsToTxn": TASKS + 1 + PARTITIONS + 1,
        # Each partition, and the state record.
        "Produce": PARTITIONS + 1,
        "EndTxn": 1,
        # 18, and a few more if the markers take longer.
        "ListOffsets": 23,
    },
}
"""docs/delivery.md has these numbers."""


@pytest.mark.nightly
def test_run_needs_no_more_requests_than_documented(
    spark: SparkSession, topic_name: str, schema_name: str, finding: Callable[[str], None]
) -> None:
    with proxied_cluster() as (proxy, cluster):
        table = Table(spark, cluster.bootstrap_servers, topic_name, schema_name, PARTITIONS)
        table.options |= {"sink_delivery_guarantee": "exactly-once", "sink_parallelism": TASKS}
        # These create the topic and read the state topic.
        for _ in range(2):
            table.publish(ROWS)
        for run, rows in (("unchanged", ROWS), ("changed", CHANGED)):
            before = proxy.requests.copy()
            table.publish(rows)
            found = {name: number for key, name in NAMES.items() if (number := proxy.requests[key] - before[key])}
            finding(f"{run}: {found}")
            assert all(number <= MOST[run].get(name, 0) for name, number in found.items()), (run, found)
