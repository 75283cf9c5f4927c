"""Writes the records of other producers to a test's topic: to given partitions, with keys, timestamps and headers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer


@dataclass(frozen=True)
class Message:
    """One record. A key or value that is neither str nor bytes is written as JSON."""

    value: Any
    key: Any = None
    partition: int = 0
    timestamp: int | None = None
    headers: list[tuple[str, bytes]] = field(default_factory=list)


def write(broker: str, topic: str, messages: Iterable[Message], partitions: int = 1) -> None:
    """Append the messages. The topic is created if it does not exist."""
    admin = KafkaAdminClient(bootstrap_servers=broker)
    try:
        if topic not in admin.list_topics():
            admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}}, wait_for_metadata=True)
    finally:
        admin.close()
    producer = KafkaProducer(bootstrap_servers=broker, acks="all", linger_ms=5)
    try:
        sent = [
            producer.send(topic, _bytes(m.value), _bytes(m.key), m.headers, partition=m.partition, timestamp_ms=m.timestamp)
            for m in messages
        ]
        for future in sent:
            future.get(timeout=30)
    finally:
        producer.close()


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()
