"""The dbt project for the commands: its models with their topics, and the cluster and registry of its profile.

dbt itself parses the project, so that profile, target, variables and `generate_topic_name` are those of a run. Spark is not
started.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import fastavro
from pyspark.sql.types import StructField, StructType

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError, in_one_line
from dbt.adapters.upsert_kafka.formats import records
from dbt.adapters.upsert_kafka.formats.avro import avro_schema
from dbt.adapters.upsert_kafka.formats.avro_confluent import subject_of
from dbt.adapters.upsert_kafka.formats.decode import Decoder
from dbt.adapters.upsert_kafka.inspection.spark_types import parse_type
from dbt.adapters.upsert_kafka.kafka_client import schema_registry
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.environment import Environment, TopicModel
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.state.record import StateRecord


@dataclass(frozen=True)
class ProjectModel:
    """A model that writes to a topic."""

    name: str
    """Of a version: orders.v2."""
    description: str
    topic: TopicModel
    options: ModelOptions
    latest: str | None = None
    """The name without a version, if this is the latest version."""

    @classmethod
    def of(cls, node: Mapping[str, Any], topic: TopicModel, options: ModelOptions) -> Self:
        """
        Args:
            node: of dbt's graph.
        """
        name, version = node["name"], node.get("version")
        latest = name if version is not None and version == node.get("latest_version") else None
        return cls(name if version is None else f"{name}.v{version}", node.get("description") or "", topic, options, latest)


@dataclass(frozen=True)
class Project:
    """A parsed project."""

    environment: Environment
    kafka: KafkaSettings
    """The profile's cluster."""
    registry: Mapping[str, Any]
    models: tuple[ProjectModel, ...]

    def find(self, name: str) -> ProjectModel | None:
        """The model with this name, or whose topic has this name. A name without a version is the latest one, as in ref()."""
        return next((model for model in self.models if name in (model.name, model.latest, model.topic.topic)), None)

    def decoders(self, model: ProjectModel | None, topic: str, record: StateRecord | None) -> tuple[Decoder, Decoder]:
        """How keys and values of a topic are decoded.

        Args:
            model: that writes to the topic; None for a topic of somebody else.
            record: the topic's state record, which has the columns of avro.
        """
        if model is None:
            # Bytes with the header of Confluent's serializers are decoded if the profile has a registry, others are text.
            return self._other(topic, "key"), self._other(topic, "value")
        options = model.options
        sides = {"key": (options.key_format, options.key_format_options)}
        sides["value"] = (options.value_format, options.value_format_options)
        key, value = (self._decoder(model, topic, role, *side, record) for role, side in sides.items())
        return key, value

    def _decoder(
        self, model: ProjectModel, topic: str, role: Any, format_: str, options: Mapping[str, Any], record: StateRecord | None
    ) -> Decoder:
        if format_ == "avro-confluent":
            return Decoder(format_, registered=self._registered(subject_of(topic, role, options), options))
        if format_ == "avro" and record is not None and record.layout is not None:
            try:
                struct = StructType([StructField(name, parse_type(kind)) for name, kind in record.layout.columns])
                layout = records.layout(model.options, topic, struct)
            except (ValueError, KeyError):  # the columns have changed since the last run, or have unusual names
                return Decoder(format_)
            schema = avro_schema(layout.key if role == "key" else layout.value)
            return Decoder(format_, schema=fastavro.parse_schema(json.loads(schema)))  # type: ignore[arg-type]
        return Decoder(format_)

    def _other(self, topic: str, role: str) -> Decoder:
        registered = self._registered(f"{topic}-{role}", {}) if self.registry.get("url") else {}
        return Decoder("avro-confluent", registered=registered) if registered else Decoder()

    def _registered(self, subject: str, options: Mapping[str, Any]) -> dict[int, Any]:
        settings = schema_registry.RegistrySettings.of(self.registry, options)
        found = schema_registry.connect(settings).schemas(subject)
        return {schema_id: fastavro.parse_schema(json.loads(schema)) for schema_id, schema in found.items()}


def load(arguments: Sequence[str]) -> Project:
    """Parse the project as `dbt parse` does.

    Args:
        arguments: dbt's flags: --project-dir, --profiles-dir, --profile, --target, --vars.

    Raises:
        UpsertKafkaError: dbt could not parse the project, or its profile is of another adapter.
    """
    from dbt.adapters.factory import get_adapter_by_type
    from dbt.cli.main import dbtRunner
    from dbt_common.exceptions import DbtRuntimeError

    silent = ("--log-level", "none", "--log-level-file", "none")
    parsed = dbtRunner().invoke([*silent, "parse", "--no-write-json", *arguments])
    if not parsed.success:
        raise UpsertKafkaError(in_one_line(parsed.exception, "dbt could not parse the project"))
    try:
        adapter: Any = get_adapter_by_type("upsert_kafka")
    except KeyError:
        raise UpsertKafkaError("the target of this project is not of type upsert_kafka") from None
    manifest: Any = parsed.result
    manifest.build_flat_graph()
    try:
        owned = adapter.execute_macro("_topics_of_models", macro_resolver=manifest)
    except DbtRuntimeError as error:
        raise UpsertKafkaError(str(error.msg)) from error
    project: Project = adapter.inspected_project(owned)
    return project
