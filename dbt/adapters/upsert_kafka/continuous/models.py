"""The continuous models of a selection, prepared by dbt: parsed, selected, compiled, checked, with views and topics.

dbt's own `run` does all of it, in this process, so that selection, flags, hooks and messages are dbt's.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError, in_one_line
from dbt.adapters.upsert_kafka.options.table import CONTINUOUS, KAFKA_SOURCE, SINKS
from dbt.adapters.upsert_kafka.streaming import handover
from dbt.adapters.upsert_kafka.streaming.pipeline import StreamModel

QUIET = ("--log-level", "warn")
"""The results of the preparation are of no interest, its warnings and errors are."""
SILENT = ("--log-level", "none")
"""For commands whose errors are reported here, in one line."""


@dataclass(frozen=True)
class Selection:
    """Continuous models, and the kafka_sources that they read: their relations must exist."""

    models: Sequence[str]
    """Names."""
    nodes: Sequence[Any]
    """Models and sources."""


def selected(nodes: Mapping[str, Any], unique_ids: Iterable[str]) -> Selection:
    """The continuous models among those that the user selected.

    Raises:
        UpsertKafkaError: there is none.
    """
    models = [nodes[unique_id] for unique_id in unique_ids if unique_id in nodes and _is_continuous(nodes[unique_id])]
    if not models:
        every = sorted(node.name for node in nodes.values() if _is_continuous(node))
        known = f"Continuous models of this project: {', '.join(every)}" if every else "This project has none"
        raise UpsertKafkaError(f"the selection has no model with trigger='{CONTINUOUS}'. {known}")
    parents = {parent for model in models for parent in model.depends_on.nodes}
    sources = [nodes[p] for p in sorted(parents) if p in nodes and nodes[p].config.materialized == KAFKA_SOURCE]
    return Selection([model.name for model in models], [*sources, *models])


def _is_continuous(node: Any) -> bool:
    config = node.config
    return node.resource_type == "model" and config.materialized in SINKS and config.get("trigger") == CONTINUOUS


def prepare(flags: Sequence[str], selection: Sequence[str], threads: Sequence[str] = ()) -> list[StreamModel]:
    """Prepare the continuous models of a selection.

    Args:
        flags: dbt's, for project and profile.
        selection: dbt's, such as `--select` and its values.

    Raises:
        UpsertKafkaError: dbt refused a model; it has printed why.
    """
    from dbt.cli.main import dbtRunner

    parsed = dbtRunner().invoke([*SILENT, "parse", "--no-write-json", *flags])
    if not parsed.success:
        raise UpsertKafkaError(in_one_line(parsed.exception, "dbt could not parse the project"))
    manifest: Any = parsed.result
    listing = ("ls", "--resource-type", "model", "--output", "json", "--output-keys", "unique_id")
    with redirect_stdout(io.StringIO()):  # dbt also prints what it returns
        listed = dbtRunner(manifest=manifest).invoke([*SILENT, *listing, *flags, *selection])
    if not listed.success:
        raise UpsertKafkaError(in_one_line(listed.exception, "dbt could not select models"))
    found = selected(manifest.nodes, _unique_ids(listed.result))
    names = [f"fqn:{'.'.join(node.fqn)}" for node in found.nodes]
    with handover.taking() as taken:
        ran = dbtRunner(manifest=manifest).invoke([*QUIET, "run", "--select", *names, *threads, *flags])
    if not ran.success or len(taken) != len(found.models):
        missing = sorted(set(found.models) - {model.request.model for model in taken})
        raise UpsertKafkaError(in_one_line(ran.exception, f"not started, because dbt could not prepare {', '.join(missing)}"))
    return taken


def _unique_ids(lines: Any) -> list[str]:
    return [json.loads(line)["unique_id"] for line in lines or ()]
