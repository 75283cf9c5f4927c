"""A broker of the fault tests' own, which they may kill, and a topic for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.faults.scene import Scene
from tests.services import Cluster

SWIFT = {
    # Transactions that are over their time are found within this, not within ten seconds.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    # A killed broker may come back this soon.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # A quota counts the last two seconds, so a fast write does not throttle the slow one that a later test starts.
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
    """A topic of four partitions on the broker that may be killed."""
    return Scene(spark, fault_cluster, topic_name)
