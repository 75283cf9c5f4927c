"""A topic with a thousand partitions is written, compared and changed in one transaction."""

from __future__ import annotations

import pytest
from kafka import KafkaAdminClient
from pyspark.sql import SparkSession

from tests.counts import counts
from tests.tables import Table, json_key, json_value

PARTITIONS, ROWS = 1000, 3000


@pytest.mark.nightly
def test_topic_with_a_thousand_partitions_is_published(
    spark: SparkSession, broker: str, topic_name: str, schema_name: str
) -> None:
    table = Table(spark, broker, topic_name, schema_name, PARTITIONS)
    admin = KafkaAdminClient(bootstrap_servers=broker)
    try:
        first = table.publish(f"SELECT CAST(id AS INT) AS id, 'a' AS name FROM range({ROWS})")
        assert (first.inserted, len(table.end())) == (ROWS, PARTITIONS)
        changed = table.publish(
            f"SELECT CAST(id AS INT) AS id, IF(id < 2000, 'b', 'a') AS name FROM range(100, {ROWS})",
            sink_delivery_guarantee="exactly-once",
        )
        assert counts(changed) == (0, 1900, 100, 1000)
        expected = [(i, "b" if i < 2000 else "a") for i in range(100, ROWS)]
        assert table.latest() == {json_key(row[0]): json_value(row) for row in expected}
    finally:
        # The broker is shared by all tests, and every partition needs files.
        admin.delete_topics([topic_name])
        admin.close()
