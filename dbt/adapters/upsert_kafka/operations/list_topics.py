"""The run-operation `list_topics`: one line per model that writes to a topic, with the topic's owner.

Leaves to `topics` how a topic is described, and to `documentation` the text of a line.
"""

from __future__ import annotations

from collections.abc import Iterable

from dbt.adapters.upsert_kafka.errors import StateError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.operations import documentation
from dbt.adapters.upsert_kafka.operations.admin_clients import admin_clients
from dbt.adapters.upsert_kafka.operations.environment import Environment, TopicModel, trusted


def lines(environment: Environment, models: Iterable[TopicModel]) -> list[str]:
    """Return the lines, sorted by model."""
    found = []
    with admin_clients() as admin_of:
        for model in sorted(models, key=lambda model: model.owner.model):
            admin = admin_of(model.kafka)
            record, no_owner = None, "nobody"
            try:
                store = environment.store(model.kafka, admin)
                record = store.get(admin, model.topic)
                if trusted(store, admin, record).owner is None:
                    record = None
            except StateError as error:
                no_owner = f"unknown: {error.msg}"
            statistics = topics.statistics(admin, model.topic)
            found.append(f"{model.owner.model}: {documentation.line(model.topic, statistics, record, no_owner)}")
    return found or ["no model of this project writes to a topic"]
