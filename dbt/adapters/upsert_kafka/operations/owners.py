"""The run-operations that change owners: adopt_topic, adopt_topics and forget_topic. Each line of their output is one change.

Leaves to `state.ownership` who may publish.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.errors import StateError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.admin_clients import admin_clients
from dbt.adapters.upsert_kafka.operations.environment import Environment, TopicModel, clusters
from dbt.adapters.upsert_kafka.state.record import Run, StateRecord
from dbt.adapters.upsert_kafka.state.store import StateStore
from dbt.adapters.upsert_kafka.state.trust import Trusted, trust


def adopt(environment: Environment, models: Iterable[TopicModel], run: Run) -> list[str]:
    """Make each model the owner of its topic.

    Returns:
        One line per model: the old owner and the new one.
    """
    lines = []
    with admin_clients() as admin_of:
        for model in sorted(models, key=lambda model: model.owner.model):
            admin = admin_of(model.kafka)
            line = _adopt(environment.writable_store(model.kafka, admin), admin, model, run)
            lines.append(f"{model.owner.model}: topic '{model.topic}': {line}")
    return lines or ["no model of this project writes to a topic"]


def _adopt(store: StateStore, admin: KafkaAdminClient, model: TopicModel, run: Run) -> str:
    topic = topics.describe(admin, model.topic)
    if topic is None:
        return "does not exist, the first run creates it"
    record = store.get(admin, model.topic)
    known = trust(record, store.cluster_id(admin), topic)
    if record is not None and known.owner == model.owner:
        if record.alias != model.alias:
            store.put(replace(record, alias=model.alias, run=run))
        return f"{known.owner} is its owner already"
    store.put(
        StateRecord(
            topic=model.topic,
            cluster_id=store.cluster_id(admin),
            topic_id=topic.id or None,
            owner=model.owner,
            alias=model.alias,
            run=run,
            created=is_still_created(model, known),
        )
    )
    return f"{known.owner or 'nobody'} -> {model.owner}"


def is_still_created(model: TopicModel, known: Trusted) -> bool:
    """Whether the topic counts as created by its new owner: only after a rename inside of a project and environment.

    A topic that another environment created must not be deleted with this one.
    """
    if known.owner is None:
        return False
    before, after = known.owner, model.owner
    return known.created and (before.project, before.environment) == (after.project, after.environment)


def forget(environment: Environment, kafka: KafkaSettings, models: Iterable[TopicModel], topic: str) -> list[str]:
    """Remove the record of a topic from the state topics of the project's clusters. The topic itself stays.

    Args:
        kafka: the profile's cluster.
        topic: its full name, with prefix and suffix.
    """
    lines = []
    with admin_clients() as admin_of:
        for cluster in clusters(kafka, models):
            admin = admin_of(cluster)
            if environment.store(cluster, admin).has(admin, topic):
                store = environment.writable_store(cluster, admin)
                owner = _owner_text(store, admin, topic)
                store.forget(topic)
                lines.append(f"topic '{topic}': {owner} is no longer its owner")
    return lines or [f"topic '{topic}': has no state record"]


def _owner_text(store: StateStore, admin: KafkaAdminClient, topic: str) -> str:
    try:
        record = store.get(admin, topic)
    except StateError:
        return "an owner that can't be decoded"
    return str(record.owner) if record else "nobody"
