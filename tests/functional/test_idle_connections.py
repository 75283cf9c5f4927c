"""One admin client serves a whole run, even if the broker closes its idle connections during a long compare."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from dbt.adapters.upsert_kafka.kafka_client import groups, topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import TopicSettings
from tests.services import Cluster

MAX_IDLE_SECONDS = 2


def test_admin_client_works_after_the_broker_closed_its_connections() -> None:
    with Cluster(properties={"connections.max.idle.ms": str(1000 * MAX_IDLE_SECONDS)}) as cluster:
        host, port = cluster.bootstrap_servers.split(":")
        with KafkaSettings(cluster.bootstrap_servers).admin() as admin:
            topic = topics.create(admin, "idle", TopicSettings(partitions=4))
            requests: list[Callable[[], object]] = [
                lambda: topics.ends(admin, "idle", topic.end),
                lambda: groups.commit(admin, "idle-group", {("idle", 0): 0}),
                lambda: topics.describe(admin, "idle"),
            ]
            for request in requests:
                with socket.create_connection((host, int(port))) as idle:
                    time.sleep(2 * MAX_IDLE_SECONDS)
                    assert idle.recv(1) == b"", "the broker did not close an idle connection"
                request()
            assert groups.committed(admin, "idle-group", [("idle", 0)])[("idle", 0)].offset == 0
