"""The contract of a sink: it writes records to a topic. Its callers decide which records, and whether they may be written.

A sink gets a DataFrame with the columns

    key        BINARY
    value      BINARY, null for a tombstone
    partition  INT, null for Kafka's default partitioner
    headers    ARRAY<STRUCT<key STRING, value BINARY>>, optional
    timestamp  TIMESTAMP, optional
    seq        INT, only if a key has several records: a sink writes them in this order
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafka import KafkaAdminClient
from pyspark.sql import DataFrame

from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings


@dataclass(frozen=True)
class StateWrite:
    """The topic's state record, which a transaction contains beside the data."""

    topic: str
    """The state topic, which exists."""
    message: Callable[[Delivery], tuple[bytes, bytes]]
    """Key and value for a delivery whose records are written and not committed yet."""
    is_alone: bool = False
    """Whether it is written also if there are no records."""


@dataclass(frozen=True)
class GroupCommit:
    """Offsets of a source's consumer group that a transaction commits together with the records."""

    source: str
    """The source's name, for messages."""
    group: str
    before: Mapping[tuple[str, int], int]
    """The group's offsets when the source determined what it reads, by topic and partition."""
    offsets: Mapping[tuple[str, int], int]
    """The end of what the source read: the group's offsets after the commit."""
    is_empty: bool
    """Whether the source read nothing."""
    metadata: str = ""


@dataclass(frozen=True)
class TransactionPlan:
    """What a transaction does besides writing the records."""

    check: Callable[[], None] | None = None
    """Called when no older run can write any more, and before the first record: raises TopicMovedError if the topic is not as the
    run compared with it. None for a run that does not depend on what the topic contains."""
    state: StateWrite | None = None
    groups: tuple[GroupCommit, ...] = ()


NO_PLAN = TransactionPlan()


@dataclass(frozen=True)
class Target:
    """Where a sink writes."""

    topic: str
    partitions: int
    kafka: KafkaSettings
    admin: KafkaAdminClient
    """The caller closes it after `deliver`."""
    transactional_id: str | None = None
    plan: TransactionPlan = NO_PLAN
    """Only for a transaction, except that `driver` also writes the state record of other deliveries."""
    topic_id: str = ""
    """Kafka's id of the topic, if known."""


@dataclass(frozen=True)
class Delivery:
    """What a sink wrote."""

    delivery: str
    """`none`, `at-least-once` or `exactly-once`."""
    records: int | None = None
    bytes: int | None = None
    """Compressed size. Spark's own sink reports neither this nor the number of records."""
    transactional_id: str | None = None
    offsets: dict[int, tuple[int, int]] | None = None
    """First and last offset written, by partition."""

    @property
    def markers_per_partition(self) -> int:
        """A committed transaction leaves one commit marker, which takes one offset, in each partition that it wrote to."""
        return 1 if self.transactional_id else 0

    def end_offsets(self, before: Mapping[int, int]) -> dict[int, int] | None:
        """The end offset of every partition after the delivery; None if the sink does not know its offsets.

        >>> Delivery("exactly-once", transactional_id="id", offsets={0: (10, 12)}).end_offsets({0: 10, 1: 5})
        {0: 14, 1: 5}
        """
        if self.offsets is None:
            return None
        return {**before, **{partition: last + 1 + self.markers_per_partition for partition, (_, last) in self.offsets.items()}}


class Sink(ABC):
    """One way to deliver."""

    @abstractmethod
    def deliver(self, records: DataFrame, target: Target) -> Delivery:
        """Write all records.

        Raises:
            DeliveryError: the write failed. The message says what readers may see now.
        """
