"""The part of the adapter that restores relations: what exists according to the state topic, and what a statement did not find.

Translates dbt's nodes and profile for `recorded`, which finds records, and `catalog.restore`, which creates relations.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from multiprocessing.context import SpawnContext
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.upsert_kafka import dbt_internals
from dbt.adapters.upsert_kafka.dbt_warnings import warn
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.adapter import OperationsAdapter, model_options
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dbt.adapters.upsert_kafka.catalog.views import Comments
    from dbt.adapters.upsert_kafka.formats import Role
    from dbt.adapters.upsert_kafka.operations.recorded import Node, RecordedRelations

logger = AdapterLogger("upsert_kafka")

BUILT = ("model", "seed", "snapshot")
"""Kinds of nodes that have a relation."""


def comments_of(model: Mapping[str, Any]) -> Comments:
    """The descriptions that the model's persist_docs writes to the catalog."""
    from dbt.adapters.upsert_kafka.catalog.views import Comments

    persisted = model["config"].get("persist_docs") or {}
    texts = {name: column.get("description") or "" for name, column in model["columns"].items()}
    return Comments(
        model.get("description") or "" if persisted.get("relation") else "",
        {name: text for name, text in texts.items() if text} if persisted.get("columns") else {},
    )


class RestoringAdapter(OperationsAdapter):
    """Lists and creates the relations of topics that the catalog of this process does not have."""

    def __init__(self, config: Any, mp_context: SpawnContext) -> None:
        super().__init__(config, mp_context)
        self._restoring = threading.Lock()
        self._listing_errors: dict[str, str] = {}
        """By bootstrap servers."""

    def list_relations_without_caching(self, schema_relation: BaseRelation) -> list[BaseRelation]:
        """The relations of the catalog, and those that a statement would restore from the state topic; see `recorded`."""
        found = super().list_relations_without_caching(schema_relation)
        if self.config.credentials.remote:
            return found
        names = {str(relation.identifier).lower() for relation in found}
        listing = self._recorded().relations(str(schema_relation.schema))
        self._warn_about_listing(listing.errors)
        return found + [relation for relation in listing.relations if str(relation.identifier).lower() not in names]

    def _read_state_early(self) -> None:
        """Read the state topic of the profile's cluster while Spark starts. Errors are reported where the state is needed."""
        from dbt.adapters.upsert_kafka.state.store import store_of

        try:
            if not self._state_settings().is_off:
                store_of(self._cluster(), self._state_settings()).read_early()
        except Exception as error:  # whatever happens here, happens again where the state is needed
            logger.debug(f"The state topic was not read early: {error!r}")

    def _warn_about_listing(self, errors: Mapping[str, str]) -> None:
        """Warn once per cluster. Views and tables do not need it; a model with a topic is refused, see `_check_listing`."""
        new = {servers: error for servers, error in errors.items() if servers not in self._listing_errors}
        self._listing_errors |= errors
        warn(*(f"The relations of models with topics at '{servers}' are not known: {error}" for servers, error in new.items()))

    def restore(self, spark: SparkSession, schema: str, identifier: str) -> bool:
        """Create a relation that a statement did not find; False if the state topic has no record of it."""
        from dbt.adapters.upsert_kafka.catalog import name, restore

        with self._restoring:
            relation = UpsertKafkaRelation.create(schema=schema, identifier=identifier, type=RelationType.View)
            if spark.catalog.tableExists(name(relation)):
                return True
            found = self._recorded().find(schema, identifier)
            if found is None:
                return False
            restore.create(spark, relation, found)
        logger.debug(f"Created {relation} from the state record of topic '{found.record.topic}'")
        return True

    def explain_missing(self, schema: str, identifier: str) -> str | None:
        """Which model builds a relation that does not exist; see `recorded`."""
        return self._recorded().explain(schema, identifier)

    def _check_listing(self, model: str, kafka: KafkaSettings) -> None:
        """Refuse to publish if it is not known which relations exist: on_schema_change would take this for a first run."""
        if error := self._listing_errors.get(kafka.bootstrap_servers):
            # Raises why Kafka can't be used, if that is still so, without the advice to run again.
            with kafka.admin():
                logger.debug(f"{model}: Kafka answers now")
            raise UpsertKafkaError(
                f"model {model}: the state topic could not be read when the command started, so it is not known what was "
                f"published before. Nothing was written. Run again. The error was: {error}"
            )

    def _recorded(self) -> RecordedRelations:
        """The relations that the state topic has records of, for the nodes of this project."""
        from dbt.adapters.upsert_kafka.catalog.restore import Restorable
        from dbt.adapters.upsert_kafka.operations.recorded import Details, RecordedRelations

        nodes = [
            node for node in dbt_internals.manifest_nodes(self) if getattr(node, "alias", None) and node.resource_type in BUILT
        ]
        cluster, registry = self._cluster(), self.config.credentials.schema_registry
        return RecordedRelations(
            self._environment(),
            {(node.schema.lower(), node.alias.lower()): self._relation_node(node) for node in nodes},
            Details(cluster, lambda record: Restorable(record, cluster, registry)),
        )

    def _relation_node(self, node: Any) -> Node:
        from dbt.adapters.upsert_kafka.catalog.restore import Restorable
        from dbt.adapters.upsert_kafka.kafka_client import schema_registry
        from dbt.adapters.upsert_kafka.operations.recorded import Details, Node

        def details() -> Details:
            model = node.to_dict()
            parsed = model_options(model)
            sides: dict[Role, Mapping[str, Any]] = {"key": parsed.key_format_options, "value": parsed.value_format_options}
            own = {role: {n: v for n, v in given.items() if n in schema_registry.SETTINGS} for role, given in sides.items()}
            kafka, registry = self._kafka(parsed), self.config.credentials.schema_registry
            return Details(kafka, lambda record: Restorable(record, kafka, registry, own, comments_of(model)))

        return Node(str(node.resource_type), node.name, node.config.materialized, node.schema, node.alias, details)
