"""Delivery of few rows by this process, in milliseconds. Spark's tasks in Python take seconds to start.

For the batches of a stream. Connections, limits and the producer outside of transactions stay open from one delivery to the next.
After a failure, or a minute without a delivery, they are opened again. A transaction gets a new epoch each time, which fences
whoever wrote before. Leaves to the caller how many rows are few.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from dbt.adapters.events.logging import AdapterLogger
from kafka.errors import KafkaError

from dbt.adapters.upsert_kafka.errors import DeliveryError
from dbt.adapters.upsert_kafka.sinks import Delivery, Target, task
from dbt.adapters.upsert_kafka.sinks.protocol import Client
from dbt.adapters.upsert_kafka.sinks.record_batch import Producer
from dbt.adapters.upsert_kafka.sinks.steps import Report
from dbt.adapters.upsert_kafka.sinks.transaction import Limits, Transaction, limits_of, property_of, write_state_record
from dbt.adapters.upsert_kafka.sinks.writer import Writer
from dbt.adapters.upsert_kafka.spark.failures import classify

logger = AdapterLogger("upsert_kafka")

IDLE_SECONDS = 60.0
PARTLY_WRITTEN = "A part of the changes may have been written; the next run completes them."


class DriverSink:
    """Writes rows of `key, value, partition[, headers][, timestamp]` to one topic, in a transaction if the target has an id.

    One thread at a time may use it.
    """

    def __init__(self) -> None:
        self._limits: Limits | None = None
        self._idle = _IdleClient()
        self._producer: _Producer | None = None

    def deliver(self, rows: pa.Table, target: Target) -> Delivery:
        """Write all rows, and the state record of the target's plan.

        Raises:
            DeliveryError: the write failed. The message says what readers may see now.
        """
        return self._deliver(rows, target)

    def write_state(self, target: Target) -> None:
        """Write the state record of the target's plan in a transaction without rows."""
        self._deliver(None, target)

    def _deliver(self, rows: pa.Table | None, target: Target) -> Delivery:
        try:
            limits = self._limits = self._limits or limits_of(target)
            if target.transactional_id is None and rows is not None:
                return self._deliver_outside(rows, target, limits)
            assert target.transactional_id is not None
            return _DriverTransaction(target, target.transactional_id, limits, rows, self._idle).deliver()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._limits = None
        self._idle.close()
        if self._producer is not None:
            self._producer.client.close()
            self._producer = None

    def _deliver_outside(self, rows: pa.Table, target: Target, limits: Limits) -> Delivery:
        try:
            producer = self._producer_of(target)
            size = producer.write(_encoded(rows, target, limits))
            delivery = Delivery("at-least-once", rows.num_rows, size)
            if target.plan.state is not None:
                producer.write_state(*target.plan.state.message(delivery))
            producer.used_at = time.monotonic()
            return delivery
        except KafkaError as error:
            logger.debug(f"Writing topic '{target.topic}' failed: {error!r}")
            reason = classify(error, target.kafka.bootstrap_servers).reason
            raise DeliveryError(f"Topic '{target.topic}': {reason}. {PARTLY_WRITTEN}") from None

    def _producer_of(self, target: Target) -> _Producer:
        if self._producer is not None and time.monotonic() - self._producer.used_at > IDLE_SECONDS:
            self._producer.client.close()
            self._producer = None
        if self._producer is None:
            client = Client(target.kafka.python_client(), _timeout(target), _topics(target))
            try:
                producer = client.open_without_transactions()
            except BaseException:
                client.close()
                raise
            state = target.plan.state
            out = Writer(client, producer, target.topic)
            self._producer = _Producer(client, producer, out, Writer(client, producer, state.topic) if state else None)
        return self._producer


@dataclass
class _Producer:
    """A producer outside of transactions. Its sequence numbers continue from one delivery to the next."""

    client: Client
    producer: Producer
    out: Writer
    state: Writer | None
    used_at: float = 0.0

    def write(self, encoded: Sequence[pa.RecordBatch]) -> int:
        """Write batches, and return when all in-sync replicas have them.

        Returns:
            Their size.
        """
        before = sum(partition.bytes for partition in self.out.partitions)
        for batches in encoded:
            task.write_batches(self.out, batches, self.producer)
        self.out.flush()
        return sum(partition.bytes for partition in self.out.partitions) - before

    def write_state(self, key: bytes, value: bytes) -> None:
        assert self.state is not None
        write_state_record(self.state, self.producer, key, value)


class _IdleClient:
    """The client of the last transaction, while no other one uses it."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._since = 0.0

    def take(self) -> Client | None:
        client, self._client = self._client, None
        if client is not None and time.monotonic() - self._since > IDLE_SECONDS:
            client.close()
            return None
        return client

    def give(self, client: Client) -> None:
        self.close()
        self._client, self._since = client, time.monotonic()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class _ReturnedClient(Client):
    """A client that is not closed after use, but kept for the next transaction, unless an error left it with half an answer."""

    idle: _IdleClient

    def __exit__(self, *error: object) -> None:
        if not any(error):
            self.idle.give(self)
        else:
            self.close()


class _DriverTransaction(Transaction):
    """The steps of a delivery of rows that this process has."""

    def __init__(self, target: Target, transactional_id: str, limits: Limits, rows: pa.Table | None, idle: _IdleClient) -> None:
        super().__init__(target, transactional_id, limits, None)
        self._rows = rows
        self._idle = idle
        self._encoded: Sequence[pa.RecordBatch] | None = None
        self._connected: Client | None = None

    def connect(self) -> Client:
        if (client := self._idle.take()) is None:
            client = _ReturnedClient(self._arguments, self._timeout, _topics(self._target))
            client.idle = self._idle
        self._connected = client
        return client

    def prepare(self) -> None:
        if self._encoded is None:
            self._encoded = _encoded(self._rows, self._target, self._limits)

    def write(self, producer: Producer) -> Sequence[Report]:
        assert self._connected is not None
        if not self._encoded:
            return []
        out = Writer(self._connected, producer, self._target.topic)
        for batches in self._encoded:
            task.write_batches(out, batches, producer)
        out.flush()
        return out.partitions


def _encoded(rows: pa.Table | None, target: Target, limits: Limits) -> Sequence[pa.RecordBatch]:
    if rows is None:
        return []
    # Rows without a key go to the partitions in turn. Many small batches must not all start with the first one.
    first = random.randrange(target.partitions)
    encode = task.encoder(target.partitions, limits.batch_bytes, property_of(target, "compression.type"), first)
    return list(encode(rows.to_batches()))


def _topics(target: Target) -> list[str]:
    return [target.topic, *([target.plan.state.topic] if target.plan.state else [])]


def _timeout(target: Target) -> float:
    return int(property_of(target, "delivery.timeout.ms")) / 1000
