"""The run-operation `commit_group_offsets`: commits the consumer groups of a run's sources.

Leaves to `source.group_offsets` which groups are due, and to `topics` how offsets are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.upsert_kafka.kafka_client import groups
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.operations.admin_clients import admin_clients
from dbt.adapters.upsert_kafka.source import group_offsets

logger = AdapterLogger("upsert_kafka")


def commit(results: Sequence[Any], nodes: Mapping[str, Any], kafka: Callable[[Mapping[str, Any]], KafkaSettings]) -> None:
    """Commit each group to the end of what its source read, if all nodes downstream of the source succeeded.

    Args:
        results: dbt's `results` of on-run-end.
        nodes: dbt's `graph.nodes`.
        kafka: returns the cluster of a node.
    """
    with admin_clients() as admin_of:
        for due in group_offsets.due(results, nodes):
            if due.failed:
                failed = ", ".join(due.failed)
                logger.warning(f"{due.source}: the offsets of group '{due.group}' are not committed: {failed} did not succeed")
                continue
            groups.commit(admin_of(kafka(nodes[due.source])), due.group, due.slice.ends())
            logger.info(f"{due.source}: the offsets of group '{due.group}' are committed")
