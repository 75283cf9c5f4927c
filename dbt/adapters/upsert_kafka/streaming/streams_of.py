"""Which streams the models of a dbt command read: `stream()` registers them, `publish` runs the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.options.table import CONTINUOUS, KAFKA, KAFKA_SOURCE, SINKS, UPSERT_KAFKA
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.sql import quote_identifier
from dbt.adapters.upsert_kafka.streaming import delta, handover, pipeline, sources
from dbt.adapters.upsert_kafka.streaming.delta import DeltaTable
from dbt.adapters.upsert_kafka.streaming.pipeline import Streamed, StreamModel
from dbt.adapters.upsert_kafka.streaming.sources import StreamSource

READS = "stream() reads a kafka_source, a kafka model that appends or a Delta table"
TABLES = ("incremental", "seed", "snapshot", "table")
"""The materializations that may be Delta tables."""


def check_model(model: Mapping[str, Any]) -> None:
    """Refuse `stream()` in a model that can't be a stream.

    Raises:
        OptionsError: the model has no trigger, or is not published to a topic.
    """
    config = model["config"]
    if config["materialized"] not in SINKS:
        raise OptionsError(
            f"model {model['name']}: stream() works in models with materialized='{UPSERT_KAFKA}' or '{KAFKA}', and this is a "
            f"{config['materialized']}. Use ref()"
        )
    if not config.get("trigger"):
        raise OptionsError(
            f"model {model['name']}: reads a stream() and has no trigger. Set trigger='available-now' or 'continuous', or "
            "trigger='batch' to compute the whole SELECT in each run"
        )


def source_node(model: str, relation: Any, graph: Mapping[str, Any]) -> dict[str, Any]:
    """The node of a relation: a kafka_source, a `kafka` model, or what may be a Delta table.

    Raises:
        OptionsError: it is something else.
    """
    name = (relation.schema, relation.identifier)
    for node in graph["nodes"].values():
        if (node["schema"], node.get("alias")) == name:
            kind = node["config"].get("materialized")
            if kind in (KAFKA_SOURCE, KAFKA, *TABLES):
                return dict(node)
            raise OptionsError(f"model {model}: {READS}, and {node['name']} is a {kind}. Read it as a static table with ref()")
    for node in graph["sources"].values():
        if (node["schema"], node["identifier"]) == name:
            return dict(node)
    raise OptionsError(f"model {model}: {READS}, and {relation} is no model or source of this project. Add it as a source")


def events_of(model: str, node: str, sink: ModelOptions, topic: str) -> ModelOptions:
    """The options with which the topic of a `kafka` model is read as a stream.

    Args:
        node: the name of the `kafka` model.
        sink: its options.
        topic: its full name.

    Raises:
        OptionsError: its messages are changes of rows.
    """
    if not sink.appends:
        raise OptionsError(
            f"model {model}: stream() reads events, and the kafka model {node} with update_mode={sink.update_mode} writes "
            "changes. Read its rows as a static table with ref(), or its messages with a kafka_source"
        )
    given = {"topic": topic, "bootstrap_servers": sink.bootstrap_servers, "properties": sink.properties}
    return options.parse(KAFKA_SOURCE, node, {name: value for name, value in given.items() if value})


class StreamsOfModels:
    """The streams of one dbt command, by model."""

    def __init__(self) -> None:
        self._sources: dict[str, dict[str, StreamSource | DeltaTable]] = {}

    def add(self, model: Mapping[str, Any], source: StreamSource | DeltaTable) -> str:
        """Register a stream of a model.

        Returns:
            The quoted name of its view.
        """
        self._sources.setdefault(model["unique_id"], {})[source.view] = source
        return quote_identifier(source.view)

    def open(self, model: Mapping[str, Any], handle: Any) -> None:
        """Create the views of a model's streams, so that its SELECT can be analysed."""
        for source in self._sources_of(model):
            sources.create_view(handle.spark, source)
        for table in self._tables_of(model):
            if problem := delta.problem(handle.spark, table):
                raise OptionsError(f"model {model['name']}: {problem}. Nothing was started.")
            delta.create_view(handle.spark, table)

    def publish(self, model: Mapping[str, Any], sql: str, handle: Any, request: Request, location: str | None) -> Streamed:
        """Publish what is new; see `pipeline.publish`.

        Args:
            location: of the checkpoints; None for the project's folder.
        """
        credentials = handle.credentials
        if credentials.remote:
            raise OptionsError(
                f"model {request.model}: a stream needs a Spark of its own, because its batches are published by this process. "
                "Set `master` instead of `remote` in the profile, or trigger='batch'. Nothing was started."
            )
        if model["language"] != "sql":
            raise OptionsError(
                f"model {request.model}: a Python model can't be a stream. Remove the trigger. Nothing was started."
            )
        folder = location or (credentials.state_dir / "checkpoints").as_uri()
        is_continuous = request.options.trigger == CONTINUOUS and handover.is_active() and request.mode == "publish"
        found = StreamModel(
            handle.spark, sql, self._sources_of(model), request, folder, is_continuous, lambda: handle.is_cancelled,
            self._tables_of(model),
        )  # fmt: skip
        if not is_continuous:
            return pipeline.publish(found)
        handover.wait_for_lease(request, lambda: handle.is_cancelled)
        streamed = pipeline.publish(found)
        # The preparation has started over. A stream that is started again after a failure continues.
        handover.give(replace(found, request=replace(request, full_refresh=False)))
        return streamed

    def _sources_of(self, model: Mapping[str, Any]) -> tuple[StreamSource, ...]:
        return tuple(found for found in self._of(model) if isinstance(found, StreamSource))

    def _tables_of(self, model: Mapping[str, Any]) -> tuple[DeltaTable, ...]:
        return tuple(found for found in self._of(model) if isinstance(found, DeltaTable))

    def _of(self, model: Mapping[str, Any]) -> tuple[StreamSource | DeltaTable, ...]:
        return tuple(self._sources.get(model["unique_id"], {}).values())
