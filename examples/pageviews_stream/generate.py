"""Writes page views to the topic `pageviews`: `python generate.py localhost:9092 [--seconds 60] [--per-second 200]`."""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import TopicAlreadyExistsError

TOPIC, PARTITIONS = "pageviews", 3
REGIONS = ("Africa", "America", "Antarctica", "Asia", "Europe", "Oceania")
WEIGHTS = (15, 25, 1, 35, 20, 4)
USERS, PAGES = 500, 50
BATCHES_PER_SECOND = 10


def create_topic(servers: str) -> None:
    """Create the topic, unless it exists."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics({TOPIC: {"num_partitions": PARTITIONS, "replication_factor": 1}}, wait_for_metadata=True)
    except TopicAlreadyExistsError:
        return
    finally:
        admin.close()


def page_view() -> dict[str, Any]:
    [region] = random.choices(REGIONS, WEIGHTS)
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return {"user_id": random.randrange(USERS), "page_id": random.randrange(PAGES), "viewtime": now, "user_region": region}


def generate(servers: str, seconds: float, per_second: int, sent: Callable[[dict[str, Any]], None]) -> None:
    """Write events at an even rate.

    Args:
        sent: is called with each event that was acknowledged.
    """
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=5)
    begin, size = time.monotonic(), max(1, per_second // BATCHES_PER_SECOND)
    number = 0
    try:
        while (due := begin + number * size / per_second) < begin + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            events = [page_view() for _ in range(size)]
            futures = [producer.send(TOPIC, json.dumps(event).encode()) for event in events]
            for event, future in zip(events, futures, strict=True):
                future.get(timeout=60)
                sent(event)
            number += 1
    finally:
        producer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers", help="bootstrap servers")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--per-second", type=int, default=200)
    arguments = parser.parse_args()
    count = 0

    def sent(_: dict[str, Any]) -> None:
        nonlocal count
        count += 1

    create_topic(arguments.servers)
    generate(arguments.servers, arguments.seconds, arguments.per_second, sent)
    print(f"{count} events written to the topic {TOPIC}")


if __name__ == "__main__":
    main()
