"""Which consumer groups the transaction of an exactly-once model commits: those of sources that this model alone consumes.

The source must be on the model's cluster. All other groups are committed at the end of the command, see `commit_group_offsets`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.commit_group_offsets import GroupSource
from dbt.adapters.upsert_kafka.sinks import GroupCommit
from dbt.adapters.upsert_kafka.source.consumers import Nodes, consumers, sources
from dbt.adapters.upsert_kafka.source.group_offsets import committed_by


@dataclass(frozen=True)
class Command:
    """What is known of the dbt command while a model runs."""

    nodes: Nodes
    """dbt's `graph.nodes`."""
    selected: Collection[str]
    """dbt's `selected_resources`."""
    defers: bool
    source_of: Callable[[Mapping[str, Any]], GroupSource]


def transactional_groups(model: str, kafka: KafkaSettings, command: Command) -> tuple[GroupCommit, ...]:
    """The groups to commit in the transaction of a model.

    Args:
        model: its unique_id.
        kafka: its cluster.
    """
    found = (_commit_of(source, model, kafka, command) for source in sources(model, command.nodes))
    return tuple(commit for commit in found if commit is not None)


def _commit_of(unique_id: str, model: str, kafka: KafkaSettings, command: Command) -> GroupCommit | None:
    try:
        source = command.source_of(command.nodes[unique_id])
    except OptionsError:
        # The source fails with this error when it runs.
        return None
    if source.options.scan_startup_mode != "group-offsets" or source.kafka.bootstrap_servers != kafka.bootstrap_servers:
        return None
    found = consumers(unique_id, command.nodes).without(source.options.commit_without, command.nodes)
    if found.models != (model,):
        return None
    # With --defer, a relation that is not part of the command may be one of another environment, with another group.
    if command.defers and not {unique_id, *found.views} <= set(command.selected):
        return None
    read = source.slice_in_catalog()
    if read is None:
        return None
    return GroupCommit(
        source=source.name,
        group=read.group,
        before=read.slice.committed,
        offsets=read.slice.ends(),
        is_empty=not read.slice.offsets,
        metadata=committed_by(source.owner),
    )
