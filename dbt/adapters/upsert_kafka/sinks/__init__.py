"""The contract of a sink: records that are allowed and placed become messages of a topic.

A sink gets a DataFrame of `key BINARY, value BINARY (null: tombstone), partition INT` and, only where they are needed,
`headers ARRAY<STRUCT<key STRING, value BINARY>>`, `timestamp TIMESTAMP` and `seq INT`, and leaves to its callers which records
those are. `partition` null means: the producer's default partitioner. `seq` is there when a key has more than one record:
it orders them, and a sink keeps that order inside the key's partition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from pyspark.sql import DataFrame

from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings


@dataclass(frozen=True)
class Target:
    """Where a sink writes, and what it calls itself there."""

    topic: str
    partitions: int
    kafka: KafkaSettings
    transactional_id: str | None = None


@dataclass(frozen=True)
class Delivery:
    """What a sink wrote."""

    delivery: str
    """The guarantee."""
    records: int | None = None
    bytes: int | None = None
    """Size on the wire; None, as for the records, where the sink isn't told."""
    transactional_id: str | None = None
    offsets: dict[int, tuple[int, int]] | None = None
    """First and last offset written, by partition."""


class Sink(ABC):
    """One way to deliver."""

    @abstractmethod
    def deliver(self, records: DataFrame, target: Target) -> Delivery:
        """Write all records or raise DeliveryError; the message says what readers may see now."""
