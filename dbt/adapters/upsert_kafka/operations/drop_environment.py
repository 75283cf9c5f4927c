"""The run-operation `drop_environment`: deletes the topics that one environment of this project created.

For environments that end, such as those of pull requests. Leaves relations in catalogs and subjects in registries as they are.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.admin_clients import admin_clients
from dbt.adapters.upsert_kafka.operations.environment import Environment, TopicModel, clusters, delete_topic
from dbt.adapters.upsert_kafka.state.record import StateRecord
from dbt.adapters.upsert_kafka.state.store import StateStore
from dbt.adapters.upsert_kafka.state.trust import trust


def drop_environment(environment: Environment, kafka: KafkaSettings, models: Iterable[TopicModel], dry_run: bool) -> list[str]:
    """Delete the topics and their records, except topics that a consumer group reads. With `dry_run` nothing is deleted.

    Args:
        environment: the one to drop.
        kafka: the profile's cluster.
        models: those of the project, whose clusters are searched too.

    Returns:
        One line per record of the environment.
    """
    lines = []
    with admin_clients() as admin_of:
        for cluster in clusters(kafka, models):
            admin = admin_of(cluster)
            store = environment.store(cluster, admin)
            records = list(environment.records(store, admin))
            if records and not dry_run:
                environment.writable_store(cluster, admin)
            lines += [_drop(store, admin, record, dry_run) for record in records]
    return lines or [f"environment '{environment.name}' of project {environment.project} owns no topic"]


def _drop(store: StateStore, admin: KafkaAdminClient, record: StateRecord, dry_run: bool) -> str:
    name = f"topic '{record.topic}'"
    topic = topics.describe(admin, record.topic)
    known = trust(record, store.cluster_id(admin), topic)
    if topic is not None and known.owner is None:
        return f"kept: {name} was created again by somebody else"
    if topic is not None and not known.created:
        return f"kept: {name} existed before this environment's first run"
    if dry_run:
        return f"would be deleted: {name}" if topic else f"would be forgotten: {name}, which does not exist any more"
    if topic is None:
        store.forget(record.topic)
        return f"forgotten: {name}, which does not exist any more"
    return delete_topic(store, admin, record.topic) or f"deleted: {name}"
