"""Admin clients for an operation that may concern several clusters: one per cluster, opened on first use, closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings


@contextmanager
def admin_clients() -> Iterator[Callable[[KafkaSettings], KafkaAdminClient]]:
    """Yield a function that returns the admin client of a cluster."""
    clients: dict[tuple[Any, ...], KafkaAdminClient] = {}
    with ExitStack() as stack:

        def admin_of(kafka: KafkaSettings) -> KafkaAdminClient:
            cluster = (kafka.bootstrap_servers, *sorted(kafka.properties.items()))
            if cluster not in clients:
                clients[cluster] = stack.enter_context(kafka.admin())
            return clients[cluster]

        yield admin_of
