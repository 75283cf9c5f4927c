"""Fixtures of the fault tests: a broker that tests may kill, and a topic for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.faults.scene import Scene
from tests.services import Cluster

SWIFT = {
    # Default: 10 s until a broker aborts a transaction that has timed out.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # A killed broker may be restarted as soon as its session has expired.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # A quota looks at the last two seconds only, so that a fast write does not throttle the write of a later test.
    "quota.window.num": "2",
}
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="session")
def fault_cluster() -> Iterator[Cluster]:
    with Cluster(properties={**SWIFT, **AUTHORIZED}) as cluster:
        yield cluster


@pytest.fixture
def scene(spark: SparkSession, fault_cluster: Cluster, topic_name: str) -> Scene:
    """A topic with four partitions on the broker that tests may kill."""
    return Scene(spark, fault_cluster, topic_name)
