"""The adapter's methods for streams: what `stream()` and `count_distinct()` are in the SQL of a model, and its run."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Mapping
from multiprocessing.context import SpawnContext
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.meta import available

from dbt.adapters.upsert_kafka import dbt_internals
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.options.table import KAFKA, KAFKA_SOURCE, SINKS

if TYPE_CHECKING:
    from dbt.adapters.upsert_kafka.publish.request import Request
    from dbt.adapters.upsert_kafka.streaming.pipeline import Streamed
    from dbt.adapters.upsert_kafka.streaming.streams_of import StreamsOfModels

STREAMING_COMMANDS = ("run", "build", "retry")
"""The commands that publish. In others `stream()` is the relation itself."""


class StreamsAdapter(dbt_internals.SparkAdapterHooks):
    """The part of the adapter that streams use."""

    def __init__(self, config: Any, mp_context: SpawnContext) -> None:
        super().__init__(config, mp_context)
        self._streams: StreamsOfModels | None = None
        self._registering = threading.Lock()

    @abstractmethod
    def _handle(self) -> Any:
        """The Spark session of this thread's connection."""

    @abstractmethod
    def _kafka(self, parsed: ModelOptions) -> KafkaSettings:
        """The cluster of a model."""

    @abstractmethod
    def _model_options(self, model: Mapping[str, Any]) -> ModelOptions:
        """The options of a node."""

    @abstractmethod
    def _source_options(self, model: Mapping[str, Any], graph: dict[str, Any], generate_topic_name: Any) -> ModelOptions:
        """The options of a kafka_source, with the full names of topics that the project publishes."""

    @available.parse(lambda model, relation, *args: relation)
    def stream(self, model: dict[str, Any], relation: Any, command: str, graph: dict[str, Any], generate_topic_name: Any) -> Any:
        """Return what `stream()` is in the SQL of a model: the name of a streaming view, or the relation itself in batch runs."""
        if not self._publishes(model, command):
            return relation
        from dbt.adapters.upsert_kafka.streaming import delta, streams_of
        from dbt.adapters.upsert_kafka.streaming.sources import StreamSource

        streams_of.check_model(model)
        if not self._model_options(model).streams:
            return relation
        node = streams_of.source_node(model["name"], relation, graph)
        kind = node["config"].get("materialized")
        if kind not in (KAFKA_SOURCE, KAFKA):
            return self._streams_of_models().add(model, delta.of_node(model["name"], relation, node))
        if kind == KAFKA_SOURCE:
            parsed = self._source_options(node, graph, generate_topic_name)
        else:
            sink = self._model_options(node)
            topic = self.config.credentials.topic_name(str(generate_topic_name(sink.topic, node)).strip())
            parsed = streams_of.events_of(model["name"], node["name"], sink, topic)
        return self._streams_of_models().add(model, StreamSource(node["name"], relation, parsed, self._kafka(parsed)))

    @available.parse(lambda *args, **kwargs: False)
    def is_stream(self, model: dict[str, Any], command: str) -> bool:
        """Return whether this command computes the model as a stream."""
        is_sink = model["config"]["materialized"] in SINKS
        return is_sink and self._publishes(model, command) and self._model_options(model).streams

    @available.parse(lambda *args, **kwargs: None)
    def open_streams(self, model: dict[str, Any]) -> None:
        """Create the streaming views, for the check of a contract; see `streaming.sources`."""
        self._streams_of_models().open(model, self._handle())

    def _streams_of_models(self) -> StreamsOfModels:
        from dbt.adapters.upsert_kafka.streaming.streams_of import StreamsOfModels

        with self._registering:
            self._streams = self._streams or StreamsOfModels()
            return self._streams

    def _publish_stream(self, model: dict[str, Any], sql: str, request: Request) -> Streamed:
        location = request.options.checkpoint_location or self.config.credentials.checkpoint_location
        return self._streams_of_models().publish(model, sql, self._handle(), request, location)

    def _publishes(self, model: dict[str, Any], command: str) -> bool:
        is_partial = dbt_internals.is_partial_run(self.config)
        return model["resource_type"] == "model" and command in STREAMING_COMMANDS and not is_partial
