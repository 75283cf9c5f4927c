"""The on-run-end hook `commit_group_offsets`: commits the consumer groups of the sources whose messages a command has consumed.

Leaves to `source.group_offsets` which groups may be committed, and to `groups` how offsets are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.dbt_warnings import warn_after_write
from dbt.adapters.upsert_kafka.errors import OptionsError, UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import groups
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.admin_clients import admin_clients
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.options.dialects import nearest
from dbt.adapters.upsert_kafka.options.table import KAFKA_SOURCE
from dbt.adapters.upsert_kafka.source.consumers import Consumers, Nodes, consumers, names_of
from dbt.adapters.upsert_kafka.source.group_offsets import (
    GroupSlice,
    Invocation,
    committed_by,
    committed_in_transaction,
    reasons_to_hold,
)
from dbt.adapters.upsert_kafka.state.record import Owner

logger = AdapterLogger("upsert_kafka")


@dataclass(frozen=True)
class GroupSource:
    """A kafka_source of the project."""

    name: str
    options: ModelOptions
    kafka: KafkaSettings
    owner: Owner
    """The source in its environment."""
    slice_in_catalog: Callable[[], GroupSlice | None]
    """Reads what the source's relation covers now; None if there is none, or if it has no group."""


@dataclass(frozen=True)
class _Candidate:
    """A source that was part of the command, or whose relation a model of the command read."""

    source: GroupSource
    read: GroupSlice
    consumers: Consumers
    """Without those that `commit_without` releases."""


def commit(nodes: Nodes, invocation: Invocation, publishes: bool, source_of: Callable[[Mapping[str, Any]], GroupSource]) -> None:
    """Commit each group to the end of what its source read, if all consumers of the source succeeded.

    Args:
        nodes: dbt's `graph.nodes`.
        publishes: False for --empty, --sample and a dry run.
        source_of: makes a GroupSource of a node.
    """
    failures: list[str] = []
    with admin_clients() as admin_of:
        for candidate in _candidates(nodes, invocation, source_of):
            source, group = candidate.source, candidate.read.group
            if not publishes:
                logger.info(f"source {source.name}: group '{group}' is not committed by --empty, --sample or a dry run")
                continue
            try:
                _commit_one(admin_of(source.kafka), candidate, nodes, invocation)
            except UpsertKafkaError as error:
                failures.append(f"source {source.name}: {error.msg}")
    if failures:
        raise UpsertKafkaError("\n".join(failures))


def _candidates(
    nodes: Nodes, invocation: Invocation, source_of: Callable[[Mapping[str, Any]], GroupSource]
) -> Iterator[_Candidate]:
    for unique_id, node in nodes.items():
        if node["resource_type"] != "model" or node["config"]["materialized"] != KAFKA_SOURCE:
            continue
        found = consumers(unique_id, nodes)
        is_part = unique_id in invocation.statuses
        # A consumer that runs alone reads what the source covered in an earlier command, for example `dbt retry`. With --defer
        # that may be the source of another environment.
        if not is_part and (invocation.defers or not invocation.includes_any(found.models)):
            continue
        if is_part and not invocation.succeeded(unique_id):
            continue
        try:
            source = source_of(node)
        except OptionsError:
            # Not part of this command. The source fails with this error when it runs.
            continue
        if source.options.scan_startup_mode != "group-offsets":
            continue
        read = GroupSlice.of(invocation.responses[unique_id]) if is_part else source.slice_in_catalog()
        if read is None:
            continue
        if is_part:
            _warn_about_unknown_names(source, found, nodes)
        if committed_in_transaction(read.group, found, invocation):
            continue
        yield _Candidate(source, read, found.without(source.options.commit_without, nodes))


def _commit_one(admin: KafkaAdminClient, candidate: _Candidate, nodes: Nodes, invocation: Invocation) -> None:
    source, read = candidate.source, candidate.read
    found = groups.committed(admin, read.group, read.slice.ends())
    current = {partition: at.offset for partition, at in found.items()}
    if current != read.slice.committed and read.is_committed(current):
        logger.debug(f"source {source.name}: group '{read.group}' is already at the end of what the source read")
        return
    not_committed = f"source {source.name}: the offsets of group '{read.group}' are not committed: "
    if reasons := reasons_to_hold(candidate.consumers, nodes, invocation):
        log = warn_after_write if read.slice.offsets else logger.debug
        log(
            f"{not_committed}{', '.join(reasons)}. The next run of the source reads the same messages again. "
            "`commit_without` of the source names models that do not hold the group back"
        )
    elif read.has_moved(current):
        warn_after_write(
            f"{not_committed}something else has committed offsets for it since the source ran. "
            "Use a group.id that nothing else uses"
        )
    else:
        groups.commit(admin, read.group, read.slice.ends(), committed_by(source.owner))
        logger.info(f"source {source.name}: the offsets of group '{read.group}' are committed")


def _warn_about_unknown_names(source: GroupSource, found: Consumers, nodes: Nodes) -> None:
    known = {name for unique_id in found.models for name in names_of(nodes[unique_id])}
    for name in source.options.commit_without:
        if name not in known:
            near = nearest(name, known)
            hint = f"; did you mean {near}?" if near else ""
            warn_after_write(f"source {source.name}: commit_without names '{name}', which does not select from this source{hint}")
