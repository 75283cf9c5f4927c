"""The state topic on a real broker: what is written is read by another process, and what can't be used is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from kafka import KafkaAdminClient, KafkaProducer

from dbt.adapters.upsert_kafka.errors import StateError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import TopicSettings
from dbt.adapters.upsert_kafka.state import lease
from dbt.adapters.upsert_kafka.state import store as state_store
from dbt.adapters.upsert_kafka.state.record import Owner, Run, StateRecord, Stream
from dbt.adapters.upsert_kafka.state.store import Access, StateSettings, StateStore
from tests.services import delete_topic

RECORD = StateRecord("orders", "cluster", "id", Owner("shop", "prod", "analytics", "orders"), "orders", Run("i1", "host", "now"))


@pytest.fixture
def kafka(broker: str) -> KafkaSettings:
    return KafkaSettings(broker)


@pytest.fixture
def admin(kafka: KafkaSettings) -> Iterator[KafkaAdminClient]:
    with kafka.admin() as client:
        yield client


@pytest.fixture
def store(kafka: KafkaSettings, admin: KafkaAdminClient, topic_name: str) -> StateStore:
    opened = StateStore(kafka, StateSettings(topic_name, 1))
    assert opened.access(admin) is Access.FULL
    assert topics.describe(admin, topic_name) is None
    assert opened.get(admin, "orders") is None
    assert opened.prepare(admin) is Access.FULL
    return opened


def reopened(store: StateStore, kafka: KafkaSettings, admin: KafkaAdminClient) -> StateStore:
    """The store as a new process opens it."""
    opened = StateStore(kafka, StateSettings(store.topic, 1))
    opened.access(admin)
    return opened


def test_state_topic_is_created_compacted_with_one_partition(store: StateStore, admin: KafkaAdminClient) -> None:
    topic = topics.describe(admin, store.topic)
    assert topic is not None
    assert (topic.partitions, topic.cleanup_policy) == (1, "compact")


def test_record_is_read_by_another_process(store: StateStore, kafka: KafkaSettings, admin: KafkaAdminClient) -> None:
    assert store.get(admin, "orders") is None
    store.put(RECORD)
    other = reopened(store, kafka, admin)
    assert other.get(admin, "orders") == RECORD
    changed = replace(RECORD, created=True)
    store.put(changed)
    assert other.get(admin, "orders") == changed
    assert list(other.all(admin)) == [changed]


def test_lease_is_read_with_the_record_and_forgotten_with_it(
    store: StateStore, kafka: KafkaSettings, admin: KafkaAdminClient
) -> None:
    record = replace(RECORD, stream=Stream({}, "query", 1, {}, {}, False))
    store.put(record)
    store.put_lease("orders", held := lease.own())
    leased = reopened(store, kafka, admin).get(admin, "orders")
    assert leased is not None and leased.stream is not None and leased.stream.lease == held
    assert [found.topic for found in store.all(admin)] == ["orders"]
    store.forget("orders")
    # A message of no topic is no record.
    assert list(store.all(admin)) == [] == list(reopened(store, kafka, admin).all(admin))
    store.put(record)
    assert store.get(admin, "orders") == record


def test_forgotten_topic_has_no_record(store: StateStore, kafka: KafkaSettings, admin: KafkaAdminClient) -> None:
    store.put(RECORD)
    assert store.get(admin, "orders") == RECORD
    store.forget("orders")
    assert store.get(admin, "orders") is None
    assert reopened(store, kafka, admin).get(admin, "orders") is None


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_state_topic_that_deletes_records_is_refused(
    kafka: KafkaSettings, admin: KafkaAdminClient, topic_name: str, policy: str
) -> None:
    topics.create(admin, topic_name, TopicSettings(1, 1, {"cleanup.policy": policy}))
    with pytest.raises(StateError, match=f"has cleanup.policy={policy}, which deletes state records"):
        StateStore(kafka, StateSettings(topic_name)).access(admin)


def test_record_of_a_newer_version_is_an_error_for_its_topic_only(
    store: StateStore, admin: KafkaAdminClient, broker: str
) -> None:
    producer = KafkaProducer(bootstrap_servers=broker)
    producer.send(store.topic, key=b"newer", value=b'{"version": 99}').get(timeout=30)
    producer.close()
    store.put(RECORD)
    assert store.get(admin, "orders") == RECORD
    with pytest.raises(StateError, match="topic 'newer' has version 99"):
        store.get(admin, "newer")
    assert list(store.all(admin)) == [RECORD]


def test_state_topic_created_again_is_read_from_its_start(
    store: StateStore, kafka: KafkaSettings, admin: KafkaAdminClient, broker: str
) -> None:
    for _ in range(3):
        store.put(RECORD)
    assert store.get(admin, "orders") == RECORD
    delete_topic(broker, store.topic)
    other = reopened(store, kafka, admin)
    other.prepare(admin)
    other.put(replace(RECORD, topic="customers"))
    assert store.get(admin, "orders") is None
    assert store.get(admin, "customers") == replace(RECORD, topic="customers")


def test_open_transaction_that_holds_back_records_is_named(
    store: StateStore, kafka: KafkaSettings, admin: KafkaAdminClient, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_store, "HELD_BACK_SECONDS", 1.0)
    transactional_id = f"{store.topic}.id"
    producer = KafkaProducer(bootstrap_servers=broker, transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(store.topic, key=b"other", value=RECORD.encode(), partition=0).get(timeout=30)
    with pytest.raises(StateError, match=f"transactional id '{transactional_id}' has been open"):
        store.get(admin, "orders")
    producer.abort_transaction()
    producer.close()
    assert store.get(admin, "other") is None


def test_committed_transaction_is_read_and_the_position_passes_its_marker(
    store: StateStore, admin: KafkaAdminClient, broker: str
) -> None:
    producer = KafkaProducer(bootstrap_servers=broker, transactional_id=f"{store.topic}.id")
    producer.init_transactions()
    for _ in range(2):
        producer.begin_transaction()
        producer.send(store.topic, key=b"orders", value=RECORD.encode(), partition=0).get(timeout=30)
        producer.commit_transaction()
        assert store.get(admin, "orders") == RECORD
    producer.close()


def test_100_000_old_records_are_read(store: StateStore, kafka: KafkaSettings, admin: KafkaAdminClient, broker: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker, linger_ms=50, batch_size=512 * 1024)
    value = RECORD.encode()
    for number in range(100_000):
        producer.send(store.topic, key=f"topic{number % 500}".encode(), value=value, partition=0)
    producer.flush()
    producer.close()
    started = time.monotonic()
    assert len(list(reopened(store, kafka, admin).all(admin))) == 500
    print(f"100,000 state records were read in {time.monotonic() - started:.2f} s")
