"""Which relations of a project the state topic has records of: those that a new, empty project folder can have again.

A relation of this project's models is restored from a record of this environment, and only while its model publishes to a topic.
Another relation is restored from a record of another environment, for `--defer`. Leaves to `catalog.restore` how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from dbt.adapters.upsert_kafka.catalog import name, restore
from dbt.adapters.upsert_kafka.catalog.restore import Restorable
from dbt.adapters.upsert_kafka.errors import OptionsError, UpsertKafkaError, kafka_error_text
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.environment import Environment
from dbt.adapters.upsert_kafka.options.table import SINKS
from dbt.adapters.upsert_kafka.relation import HELPER_SCHEMA_SUFFIX, SNAPSHOT_SUFFIX, TOPIC_SUFFIX, UpsertKafkaRelation
from dbt.adapters.upsert_kafka.state.record import StateRecord
from dbt.adapters.upsert_kafka.state.store import Access, store_of

logger = AdapterLogger("upsert_kafka")

COMMANDS = {"seed": "dbt seed", "snapshot": "dbt snapshot"}
"""That build a node; models are built by `dbt run`."""


@dataclass(frozen=True)
class Node:
    """A node of the project that has a relation."""

    kind: str
    """model, seed or snapshot."""
    name: str
    materialization: str
    schema: str
    alias: str
    details: Callable[[], Details]
    """What the model's own options add to its record; not computed for other nodes."""

    @property
    def has_topic(self) -> bool:
        return self.materialization in SINKS


@dataclass(frozen=True)
class Details:
    """Cluster, registry settings and comments of a model that publishes to a topic."""

    kafka: KafkaSettings
    restorable: Callable[[StateRecord], Restorable]


@dataclass(frozen=True)
class Listing:
    """The relations that the state topics have records of."""

    relations: list[UpsertKafkaRelation]
    errors: Mapping[str, str]
    """Why the state topic of a cluster could not be read, by bootstrap servers."""


@dataclass(frozen=True)
class RecordedRelations:
    """The relations of one project in one environment."""

    environment: Environment
    nodes: Mapping[tuple[str, str], Node]
    """By schema and alias in lower case, as Spark compares them."""
    profile: Details
    """For relations of other environments: the profile's cluster."""

    def relations(self, schema: str) -> Listing:
        """The relations of a schema. Creates none of them."""
        errors: dict[str, str] = {}
        return Listing([_relation(found.record) for found in self._found(schema, None, errors)], errors)

    def find(self, schema: str, identifier: str) -> Restorable | None:
        """What a relation can be created from; None if it can't be."""
        if schema.endswith(HELPER_SCHEMA_SUFFIX) or identifier.endswith((TOPIC_SUFFIX, SNAPSHOT_SUFFIX)):
            return None
        return next(iter(self._found(schema, identifier, None)), None)

    def explain(self, schema: str, identifier: str) -> str | None:
        """Why a relation of this project does not exist and what to do, for a message; None for other relations."""
        model_schema = schema.removesuffix(HELPER_SCHEMA_SUFFIX)
        alias = identifier if model_schema == schema else identifier.removesuffix(TOPIC_SUFFIX).removesuffix(SNAPSHOT_SUFFIX)
        node = self.nodes.get(_key(model_schema, alias))
        if node is None:
            return None
        command = f"{COMMANDS.get(node.kind, 'dbt run')} --select {node.name}"
        if not node.has_topic:
            what = f"{node.kind} {node.name}" + (f" ({node.materialization})" if node.kind == "model" else "")
            return f"It is built by {what}, whose relation is kept in the project folder only. Build it here first: {command}"
        if self.environment.state.is_off:
            return f"The profile sets `state_topic: none`, so the relation of model {node.name} is not restored. First: {command}"
        return (
            f"The state topic has no record of model {node.name} in environment {self.environment.name} from which it could be "
            f"restored. Publish the model first: {command}"
        )

    def _found(self, schema: str, identifier: str | None, errors: dict[str, str] | None) -> list[Restorable]:
        """The relations of a schema that can be restored, or the one of a name.

        Args:
            errors: gets the errors of clusters; None to raise them.
        """
        if self.environment.state.is_off:
            return []
        wanted = [
            node
            for key, node in self.nodes.items()
            if node.has_topic and key[0] == schema.lower() and (identifier is None or key[1] == identifier.lower())
        ]
        found: list[Restorable] = []
        for kafka, models in _by_cluster(wanted):
            found += _collected(kafka, errors, self._of_models(kafka, models))
        if identifier is None or not wanted:
            kafka = self.profile.kafka
            if errors is None or kafka.bootstrap_servers not in errors:
                found += _collected(kafka, errors, self._of_other_environments(schema, identifier))
        return found

    def _of_models(self, kafka: KafkaSettings, models: Iterable[tuple[Node, Details]]) -> Iterator[Restorable]:
        with kafka.admin() as admin:
            records = [r for r in self._records(admin, kafka) if r.owner.environment == self.environment.name]
            newest = {_key(r.owner.schema, r.alias): r for r in sorted(records, key=lambda record: record.run.started_at)}
            own = [(newest.get(_key(node.schema, node.alias)), node, details) for node, details in models]
            matching = [(r, details) for r, node, details in own if r is not None and r.owner.model == node.name]
            live = _live(admin, [record for record, _ in matching])
        yield from (details.restorable(record) for record, details in matching if record in live)

    def _of_other_environments(self, schema: str, identifier: str | None) -> Iterator[Restorable]:
        with self.profile.kafka.admin() as admin:
            newest: dict[tuple[str, str], dict[str, StateRecord]] = {}
            for record in sorted(self._records(admin, self.profile.kafka), key=lambda record: record.run.started_at):
                key = _key(record.owner.schema, record.alias)
                is_wanted = key[0] == schema.lower() and (identifier is None or key[1] == identifier.lower())
                if is_wanted and key not in self.nodes and record.owner.environment != self.environment.name:
                    newest.setdefault(key, {})[record.owner.environment] = record
            # With records of two environments it is not known which one is meant.
            unambiguous = [record for records in newest.values() if len(records) == 1 for record in records.values()]
            live = _live(admin, unambiguous)
        yield from (self.profile.restorable(record) for record in unambiguous if record in live)

    def _records(self, admin: KafkaAdminClient, kafka: KafkaSettings) -> list[StateRecord]:
        """The records of this project in all environments."""
        store = store_of(kafka, self.environment.state)
        if store.access(admin) not in (Access.FULL, Access.READ_ONLY):
            return []
        cluster_id = store.cluster_id(admin)
        records = store.all(admin, waits=False)
        return [r for r in records if r.owner.project == self.environment.project and r.cluster_id == cluster_id]


def _by_cluster(nodes: Iterable[Node]) -> list[tuple[KafkaSettings, list[tuple[Node, Details]]]]:
    """The models by cluster and user. A model with wrong options is left out: it reports them when it runs."""
    found: dict[Any, tuple[KafkaSettings, list[tuple[Node, Details]]]] = {}
    for node in nodes:
        try:
            details = node.details()
        except OptionsError as error:
            logger.debug(f"{node.name}: {error.msg}")
            continue
        kafka = details.kafka
        found.setdefault((kafka.bootstrap_servers, *sorted(kafka.properties.items())), (kafka, []))[1].append((node, details))
    return list(found.values())


def _collected(kafka: KafkaSettings, errors: dict[str, str] | None, found: Iterator[Restorable]) -> list[Restorable]:
    try:
        return list(found)
    except (UpsertKafkaError, KafkaError) as error:
        if errors is None:
            raise
        errors[kafka.bootstrap_servers] = error.msg if isinstance(error, UpsertKafkaError) else kafka_error_text(error)
        return []


def _live(admin: KafkaAdminClient, records: Iterable[StateRecord]) -> list[StateRecord]:
    """The records that say how to read a topic and describe the topic that exists now."""
    complete = [record for record in records if restore.is_restorable(record)]
    ids = topics.ids(admin, [record.topic for record in complete])
    return [r for r in complete if r.topic in ids and (r.topic_id is None or not ids[r.topic] or r.topic_id == ids[r.topic])]


def _relation(record: StateRecord) -> UpsertKafkaRelation:
    relation = UpsertKafkaRelation.create(schema=record.owner.schema, identifier=record.alias, type=RelationType.View)
    # As dbt-spark has it for a relation of the catalog, where the text of the view contains this name.
    return relation.replace(information=f"Type: VIEW\nView Text: of {name(relation.topic_table)}")


def _key(schema: str, alias: str) -> tuple[str, str]:
    return schema.lower(), alias.lower()
