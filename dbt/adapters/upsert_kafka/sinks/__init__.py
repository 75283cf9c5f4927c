"""The contract of a sink: records that are allowed and placed become messages of a topic.

A sink gets a DataFrame of `key BINARY, value BINARY (null: tombstone), partition INT, seq INT, headers ARRAY<STRUCT<key STRING, value BINARY>>`
and leaves to its callers which records those are. `partition` null means: the producer's default partitioner.
`seq` orders the records of one key; a sink keeps that order inside the key's partition.
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

    guarantee: str
    records: int
    bytes: int | None = None
    transactional_id: str | None = None
    offsets: dict[int, tuple[int, int]] | None = None
    """First and last offset written, by partition."""


class Sink(ABC):
    """One way to deliver."""

    @abstractmethod
    def deliver(self, records: DataFrame, target: Target) -> Delivery:
        """Write all records or raise DeliveryError; the message says what readers may see now."""
