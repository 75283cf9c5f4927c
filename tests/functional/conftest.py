from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.tables import Table


@pytest.fixture
def table(spark: SparkSession, broker: str, topic_name: str, schema_name: str) -> Table:
    """A model of this test's own, and its topic of two partitions."""
    return Table(spark, broker, topic_name, schema_name)
