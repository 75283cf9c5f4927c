"""Reads and writes state records: one store per cluster and process, read once and then incrementally.

The state topic has one partition and is compacted. It is created before the first record. Records are kept as bytes and decoded
when they are asked for, so that a record that can't be decoded is an error for its topic only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from dbt.adapters.upsert_kafka.credentials import DEFAULT_STATE_TOPIC
from dbt.adapters.upsert_kafka.dbt_warnings import warn
from dbt.adapters.upsert_kafka.errors import MissingRightError, StateError, kafka_error_text
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.internals import asks_leaders_at_once, describe_cluster
from dbt.adapters.upsert_kafka.kafka_client.open_transactions import HELD_BACK_SECONDS, open_transaction
from dbt.adapters.upsert_kafka.kafka_client.topics import READ_COMMITTED, READ_UNCOMMITTED, Topic, TopicSettings
from dbt.adapters.upsert_kafka.state.record import Lease, StateRecord, decode, encode_lease

logger = AdapterLogger("upsert_kafka")

NO_STATE = "none"
"""In the profile: no ownership, no incremental runs."""
CONFIG = {
    "cleanup.policy": "compact",
    # Small segments and a low ratio: the topic is compacted often, and stays as small as the number of its topics.
    "segment.bytes": str(1024 * 1024),
    "min.cleanable.dirty.ratio": "0.01",
}
LEASE = "lease of {}"
"""The key of a lease's message. No topic has such a name."""
POLL_MS = 200
READ_SECONDS = 60.0
FETCH_BYTES = 16 * 1024 * 1024
SEND_SECONDS = 30.0


class Access(Enum):
    """What the user may do with the state topic."""

    FULL = "full"
    READ_ONLY = "read only"
    """Ownership is checked, records are not written."""
    NONE = "none"
    """Not readable: only runs that add are allowed."""
    OFF = "off"
    """The profile sets `state_topic: none`."""


@dataclass(frozen=True)
class StateSettings:
    """Where the state is kept, from the profile."""

    topic: str = DEFAULT_STATE_TOPIC
    replication_factor: int | None = None

    @property
    def is_off(self) -> bool:
        return self.topic == NO_STATE


class StateStore:
    """The records of one cluster; safe to use from every thread."""

    def __init__(self, kafka: KafkaSettings, settings: StateSettings) -> None:
        self._kafka = kafka
        self._settings = settings
        self._lock = threading.Lock()
        self._consumer: KafkaConsumer | None = None
        self._position = 0
        self._access: Access | None = None
        self._values: dict[str, bytes] = {}
        self._cluster_id: str | None = None

    @property
    def topic(self) -> str:
        return self._settings.topic

    @property
    def is_off(self) -> bool:
        return self._settings.is_off

    def cluster_id(self, admin: KafkaAdminClient) -> str:
        """The cluster's id, which tells it from another at the same address."""
        if self._cluster_id is None:
            self._cluster_id = str(describe_cluster(admin)["cluster_id"])
        return self._cluster_id

    def access(self, admin: KafkaAdminClient) -> Access:
        """What the user may do. Asked until the state topic exists, then known.

        Raises:
            StateError: the state topic is not compacted, so that records would be lost.
        """
        if self.is_off:
            return Access.OFF
        if self._access is None:
            try:
                topic = topics.describe(admin, self.topic)
            except MissingRightError as error:
                logger.debug(f"State topic '{self.topic}': {error}")
                return Access.NONE
            self._access = self._access_to(topic) if topic is not None else None
        return self._access or Access.FULL

    def prepare(self, admin: KafkaAdminClient) -> Access:
        """Create the state topic if it does not exist; comes before the first record is written."""
        access = self.access(admin)
        if access is Access.FULL and self._access is None:
            try:
                self._access = self._access_to(self._create(admin))
            except MissingRightError as error:
                logger.debug(f"State topic '{self.topic}': {error}")
                return Access.NONE
        return self._access or access

    def _access_to(self, topic: Topic) -> Access:
        policy = topic.cleanup_policy
        if policy is not None and ("delete" in policy or "compact" not in policy):
            raise StateError(
                f"state topic '{self.topic}' has cleanup.policy={policy}, which deletes state records. Nothing was written. "
                "Set cleanup.policy=compact, or name another topic in `state_topic` of the profile"
            )
        if topic.operations is None:
            return Access.FULL
        if "READ" not in topic.operations:
            return Access.NONE
        return Access.FULL if "WRITE" in topic.operations else Access.READ_ONLY

    def get(self, admin: KafkaAdminClient, topic: str, waits: bool = True) -> StateRecord | None:
        """The newest record of a topic.

        Args:
            waits: for transactions that hold back newer records; without, the newest record before these is returned.

        Raises:
            StateError: the record can't be decoded or is of a newer version.
        """
        values = self._refreshed(admin, waits)
        return None if topic not in values else decode(topic, values[topic], values.get(LEASE.format(topic)))

    def has(self, admin: KafkaAdminClient, topic: str) -> bool:
        """Whether a topic has a record, also one that can't be decoded."""
        return topic in self._refreshed(admin)

    def all(self, admin: KafkaAdminClient, waits: bool = True) -> Iterator[StateRecord]:
        """The records of all topics; one that can't be decoded is logged and left out.

        Args:
            waits: see `get`.
        """
        values = self._refreshed(admin, waits)
        for topic in sorted(key for key in values if not key.startswith(LEASE.format(""))):
            try:
                yield decode(topic, values[topic], values.get(LEASE.format(topic)))
            except StateError as error:
                warn(str(error))

    def read_early(self) -> None:
        """Read the records that a command will need, while it still waits for something else.

        Raises:
            KafkaUnreachableError, KafkaError, StateError, MissingRightError: as when they are needed.
        """
        with self._kafka.admin() as admin:
            if self.access(admin) in (Access.FULL, Access.READ_ONLY):
                self.cluster_id(admin)
                self._refreshed(admin, waits=False)

    def put(self, record: StateRecord) -> None:
        """Write a record outside of a transaction; returns when all in-sync replicas have it."""
        self._send(record.topic, record.encode())

    def forget(self, topic: str) -> None:
        """Remove a topic's record and lease: tombstones."""
        self._send(topic, None)
        if LEASE.format(topic) in self._values:
            self.put_lease(topic, None)

    def put_lease(self, topic: str, lease: Lease | None) -> None:
        """Write the lease of a topic's stream, or remove it. See `state.keeper`."""
        self._send(LEASE.format(topic), None if lease is None else encode_lease(lease))

    def _send(self, topic: str, value: bytes | None) -> None:
        with self._producer() as producer:
            try:
                producer.send(self.topic, key=topic.encode(), value=value, partition=0).get(timeout=SEND_SECONDS)
            except KafkaError as error:
                raise StateError(
                    f"the state record of topic '{topic}' could not be written to '{self.topic}': {kafka_error_text(error)}"
                ) from error

    @contextmanager
    def _producer(self) -> Iterator[KafkaProducer]:
        producer = KafkaProducer(
            **self._kafka.python_client(), acks="all", allow_auto_create_topics=False, max_block_ms=SEND_SECONDS * 1000
        )
        try:
            yield asks_leaders_at_once(producer)
        finally:
            producer.close(timeout=SEND_SECONDS)

    def _create(self, admin: KafkaAdminClient) -> Topic:
        settings = TopicSettings(1, self._settings.replication_factor, CONFIG, compacted=True)
        return topics.create(admin, self.topic, settings)

    def _refreshed(self, admin: KafkaAdminClient, waits: bool = True) -> dict[str, bytes]:
        """The records by topic, as of now."""
        with self._lock:
            if self._access is None:
                # The state topic did not exist when it was last looked for.
                return {}
            # One request: the end of what is written, or with `waits=False` of what is committed.
            [end] = topics.ends(admin, self.topic, [0], READ_UNCOMMITTED if waits else READ_COMMITTED).values()
            if end < self._position:
                # The state topic was deleted and created again.
                self._values, self._position = {}, 0
                self._close_consumer()
            if end > self._position:
                self._read_until(end, admin)
            return dict(self._values)

    def _read_until(self, end: int, admin: KafkaAdminClient) -> None:
        """Read what is committed up to `end`, and wait for transactions that hold back a part of it."""
        partition = TopicPartition(self.topic, 0)
        if self._consumer is None:
            self._consumer = KafkaConsumer(
                **self._kafka.python_client(),
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
                max_poll_records=10_000,
                max_partition_fetch_bytes=FETCH_BYTES,
                fetch_max_bytes=FETCH_BYTES,
                check_crcs=False,
            )
            self._consumer.assign([partition])
            self._consumer.seek(partition, self._position)
        until = time.monotonic() + READ_SECONDS
        stalled_at = time.monotonic() + HELD_BACK_SECONDS
        while (position := self._consumer.position(partition)) < end:
            if position > self._position:
                self._position, stalled_at = position, time.monotonic() + HELD_BACK_SECONDS
            if time.monotonic() > min(until, stalled_at):
                raise StateError(self._unreadable(admin, position, end))
            for message in self._consumer.poll(timeout_ms=POLL_MS).get(partition, ()):
                self._remember(message.key, message.value)
        self._position = end

    def _unreadable(self, admin: KafkaAdminClient, position: int, end: int) -> str:
        """Why the state topic could not be read up to `end`."""
        [committed] = topics.ends(admin, self.topic, [0], READ_COMMITTED).values()
        if committed >= end:
            return f"state topic '{self.topic}' could not be read: the reader is at offset {position} of {end}"
        return (
            f"state topic '{self.topic}': {open_transaction(admin, self.topic)} has been open for more than "
            f"{HELD_BACK_SECONDS:.0f} s and holds back newer records. Nothing was written. Wait until it ends, or run "
            "the model whose run was killed again"
        )

    def _close_consumer(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _remember(self, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            return
        topic = key.decode(errors="replace")
        if value is None:
            self._values.pop(topic, None)
        else:
            self._values[topic] = value


_Cluster = tuple[str, tuple[tuple[str, str], ...], StateSettings]
_stores: dict[_Cluster, StateStore] = {}
_stores_lock = threading.Lock()


def store_of(kafka: KafkaSettings, settings: StateSettings) -> StateStore:
    """The process's store of a cluster and a user of it."""
    cluster = (kafka.bootstrap_servers, tuple(sorted(kafka.properties.items())), settings)
    with _stores_lock:
        return _stores.setdefault(cluster, StateStore(kafka, settings))
