"""The adapter's methods for run-operations, and what they and a run have in common: options, cluster, owner and environment.

The macros in `macros/operations/` call them and log the lines that they return.
"""

from __future__ import annotations

import socket
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available

from dbt.adapters.upsert_kafka import dbt_internals, options
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.find_model import find_model
from dbt.adapters.upsert_kafka.options import variables
from dbt.adapters.upsert_kafka.publish import contracts
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.state.record import Owner, Run, now_text

if TYPE_CHECKING:
    from dbt.adapters.upsert_kafka.operations.commit_group_offsets import GroupSource
    from dbt.adapters.upsert_kafka.operations.environment import Environment, TopicModel
    from dbt.adapters.upsert_kafka.source.group_offsets import GroupSlice
    from dbt.adapters.upsert_kafka.state.store import StateSettings

Owned = list[dict[str, Any]]
"""`node` and `topic` of models that write to topics."""


def model_options(model: Mapping[str, Any], other_problems: Sequence[str] = ()) -> options.ModelOptions:
    """The options of a node. Sides with `schema_docs` get the descriptions of the model ('') and its columns as `docs`."""
    problems = [*contracts.problems(model), *other_problems]
    parsed = options.parse(model["config"]["materialized"], model["name"], contracts.with_key(model), problems)
    described = {name: column.get("description", "") for name, column in (model.get("columns") or {}).items()}

    def with_docs(side: dict[str, Any]) -> dict[str, Any]:
        return {**side, "docs": {"": model.get("description", ""), **described}} if side.get("schema_docs") else side

    return replace(
        parsed,
        key_format_options=with_docs(parsed.key_format_options),
        value_format_options=with_docs(parsed.value_format_options),
    )


class OperationsAdapter(dbt_internals.SparkAdapterHooks):
    """The part of the adapter that run-operations use."""

    @abstractmethod
    def _handle(self) -> Any:
        """The Spark session of this thread's connection."""

    @available.parse(lambda *args, **kwargs: None)
    def commit_group_offsets(self, results: list[Any], graph: dict[str, Any], dry_run: Any) -> None:
        """Commit the consumer groups of this run's sources; see `operations.commit_group_offsets`.

        Args:
            dry_run: the variable upsert_kafka_dry_run.
        """
        from dbt.adapters.upsert_kafka.operations import commit_group_offsets
        from dbt.adapters.upsert_kafka.source.group_offsets import Invocation

        invocation = Invocation.of(results, dbt_internals.is_deferred_run(self.config))
        publishes = not variables.is_dry_run(dry_run) and not dbt_internals.is_partial_run(self.config)
        commit_group_offsets.commit(graph["nodes"], invocation, publishes, self._group_source)

    @available.parse(lambda *args, **kwargs: {})
    def find_model(self, graph: dict[str, Any], operation: str, name: str, materializations: list[str]) -> Any:
        """Return the node of the model that a run-operation names; see `operations.find_model`."""
        return find_model(graph["nodes"], operation, name, materializations)

    @available.parse(lambda *args, **kwargs: [])
    def list_topics(self, owned: Owned) -> list[str]:
        """Return one line per model that writes to a topic; see `operations.list_topics`."""
        from dbt.adapters.upsert_kafka.operations import list_topics

        return list_topics.lines(self._environment(), self._topic_models(owned))

    @available.parse(lambda *args, **kwargs: [])
    def orphan_topics(self, owned: Owned, graph: dict[str, Any], dry_run: bool) -> list[str]:
        """Return one line per orphan; without `dry_run` they are deleted; see `operations.orphans`."""
        from dbt.adapters.upsert_kafka.operations.orphans import Orphans, Relations

        found = Orphans(self._environment(), self._topic_models(owned), Relations.of(graph["nodes"]))
        return found.report(self._handle().spark, self._cluster(), dry_run)

    @available.parse(lambda *args, **kwargs: [])
    def adopt_topics(self, owned: Owned) -> list[str]:
        """Make models the owners of their topics; see `operations.owners`."""
        from dbt.adapters.upsert_kafka.operations import owners

        return owners.adopt(self._environment(), self._topic_models(owned), self._run())

    @available.parse(lambda *args, **kwargs: [])
    def forget_topic(self, owned: Owned, topic: str) -> list[str]:
        """Remove the state record of a topic; see `operations.owners`."""
        from dbt.adapters.upsert_kafka.operations import owners

        return owners.forget(self._environment(), self._cluster(), self._topic_models(owned), topic)

    @available.parse(lambda *args, **kwargs: [])
    def drop_environment(self, owned: Owned, environment: str, dry_run: bool) -> list[str]:
        """Delete the topics that an environment of this project created; see `operations.drop_environment`."""
        from dbt.adapters.upsert_kafka.operations.drop_environment import drop_environment

        dropped = replace(self._environment(), name=str(environment))
        return drop_environment(dropped, self._cluster(), self._topic_models(owned), dry_run)

    def _topic_models(self, owned: Owned) -> list[TopicModel]:
        from dbt.adapters.upsert_kafka.operations.environment import TopicModel

        nodes: Iterable[tuple[dict[str, Any], str]] = ((entry["node"], entry["topic"]) for entry in owned)
        return [TopicModel(self._owner(node), node["alias"], topic, self._kafka(model_options(node))) for node, topic in nodes]

    def _owner(self, model: Mapping[str, Any]) -> Owner:
        environment = self._environment()
        return Owner(environment.project, environment.name, str(model["schema"]), str(model["name"]))

    def _environment(self) -> Environment:
        from dbt.adapters.upsert_kafka.operations.environment import Environment

        name = self.config.credentials.environment or dbt_internals.target_name(self.config)
        return Environment(self.config.project_name, name, self._state_settings())

    def _run(self) -> Run:
        return Run(dbt_internals.invocation_id(), socket.gethostname(), now_text())

    def _state_settings(self) -> StateSettings:
        from dbt.adapters.upsert_kafka.state.store import StateSettings

        credentials: UpsertKafkaCredentials = self.config.credentials
        return StateSettings(credentials.state_topic, credentials.topic_defaults.get("replication_factor"))

    def _cluster(self) -> KafkaSettings:
        """The profile's cluster."""
        return KafkaSettings.of(self.config.credentials)

    def _group_source(self, node: Mapping[str, Any]) -> GroupSource:
        """A kafka_source of the graph, for the commit of its group."""
        from dbt.adapters.upsert_kafka.catalog import properties
        from dbt.adapters.upsert_kafka.operations.commit_group_offsets import GroupSource
        from dbt.adapters.upsert_kafka.source.group_offsets import PROPERTY, GroupSlice

        parsed = model_options(node)
        relation = UpsertKafkaRelation.create(schema=node["schema"], identifier=node["alias"])

        def slice_in_catalog() -> GroupSlice | None:
            return GroupSlice.from_text(properties.state(self._handle().spark, relation).get(PROPERTY))

        return GroupSource(str(node["name"]), parsed, self._kafka(parsed), self._owner(node), slice_in_catalog)

    def _kafka(self, parsed: options.ModelOptions) -> KafkaSettings:
        return KafkaSettings.of(self.config.credentials, parsed.bootstrap_servers, parsed.properties)
