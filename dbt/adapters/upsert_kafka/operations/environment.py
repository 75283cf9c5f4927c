"""The topics of one project in one environment: those of its models, and those that the state topic has records of.

Leaves to `state.trust` whether a record still describes the live topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from dbt.adapters.upsert_kafka.errors import StateError, UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import groups, topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.state.record import Owner, StateRecord
from dbt.adapters.upsert_kafka.state.store import Access, StateSettings, StateStore, store_of
from dbt.adapters.upsert_kafka.state.trust import Trusted, trust

logger = AdapterLogger("upsert_kafka")


@dataclass(frozen=True)
class TopicModel:
    """A model that writes to a topic."""

    owner: Owner
    alias: str
    topic: str
    kafka: KafkaSettings


@dataclass(frozen=True)
class Environment:
    """One project in one environment."""

    project: str
    name: str
    state: StateSettings

    def store(self, kafka: KafkaSettings, admin: KafkaAdminClient) -> StateStore:
        """The state of a cluster.

        Raises:
            StateError: the profile switches state off, or this user may not read it.
        """
        store = store_of(kafka, self.state)
        access = store.access(admin)
        if access is Access.OFF:
            raise StateError("the profile sets `state_topic: none`, so topics have no owners. Remove it to use this operation")
        if access is Access.NONE:
            raise StateError(f"this user may not read the state topic '{store.topic}'. Grant READ on it")
        return store

    def writable_store(self, kafka: KafkaSettings, admin: KafkaAdminClient) -> StateStore:
        """The state of a cluster, for an operation that changes records. Creates the state topic if it does not exist.

        Raises:
            StateError: the profile switches state off, or this user may not read and write it.
        """
        store = self.store(kafka, admin)
        if store.prepare(admin) is not Access.FULL:
            raise StateError(f"this user may not write to the state topic '{store.topic}'. Grant READ, WRITE and CREATE on it")
        return store

    def records(self, store: StateStore, admin: KafkaAdminClient) -> Iterator[StateRecord]:
        """The records whose owner is of this project and environment, whether or not they still describe a topic."""
        for record in store.all(admin):
            if (record.owner.project, record.owner.environment) == (self.project, self.name):
                yield record

    def record_of(self, store: StateStore, admin: KafkaAdminClient, schema: str, alias: str) -> StateRecord | None:
        """The record of the topic that a relation shows. If the relation had several topics: the one of the last run."""
        found = [r for r in self.records(store, admin) if (r.owner.schema, r.alias) == (schema, alias)]
        return max(found, key=lambda record: record.run.started_at, default=None)


def trusted(store: StateStore, admin: KafkaAdminClient, record: StateRecord | None) -> Trusted:
    """The fields of a record that the live topic confirms."""
    topic = topics.describe(admin, record.topic) if record else None
    return trust(record, store.cluster_id(admin), topic)


def former_topic(environment: Environment, kafka: KafkaSettings, schema: str, alias: str) -> str | None:
    """The topic that a relation showed before, for a warning; None if it is not known."""
    if environment.state.is_off:
        return None
    try:
        with kafka.admin() as admin:
            record = environment.record_of(environment.store(kafka, admin), admin, schema, alias)
    except (UpsertKafkaError, KafkaError) as error:
        # A view or table does not need the cluster.
        logger.debug(f"{schema}.{alias}: its former topic is not known: {error}")
        return None
    return record.topic if record else None


def clusters(first: KafkaSettings, models: Iterable[TopicModel]) -> list[KafkaSettings]:
    """The clusters of a project: the profile's, and those that models name in their own `bootstrap_servers`."""
    found = {first.bootstrap_servers: first}
    for model in models:
        found.setdefault(model.kafka.bootstrap_servers, model.kafka)
    return list(found.values())


def delete_topic(store: StateStore, admin: KafkaAdminClient, topic: str) -> str | None:
    """Delete a topic and its record, unless a consumer group reads the topic.

    Returns:
        Why it was not deleted, as a sentence; None if it was.
    """
    readers = groups.readers(admin, topic)
    if readers:
        named = "this group" if len(readers) == 1 else "these groups"
        return f"refused: topic '{topic}' is read by {', '.join(readers)}. Stop {named} first."
    topics.delete(admin, topic)
    store.forget(topic)
    return None
