"""Fixtures of the functional tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.secured import SecuredCluster
from tests.tables import Table


@pytest.fixture
def table(spark: SparkSession, broker: str, topic_name: str, schema_name: str) -> Table:
    """A model named after the test, with a topic of two partitions."""
    return Table(spark, broker, topic_name, schema_name)


@pytest.fixture(scope="session")
def secured() -> Iterator[SecuredCluster]:
    """A broker that requires authentication."""
    with SecuredCluster() as cluster:
        yield cluster
