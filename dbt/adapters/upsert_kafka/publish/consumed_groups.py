"""Consumer groups in the transaction of an exactly-once run: reading from a source and publishing happen once, together.

The transaction commits the group's offsets only if they are still where they were when the source ran. Leaves to
`operations.transactional_groups` which groups these are, and to `sinks` how they are committed.
"""

from __future__ import annotations

from dataclasses import replace

from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.kafka_client import groups
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.sinks import GroupCommit, TransactionPlan


def with_groups(plan: TransactionPlan, admin: KafkaAdminClient, request: Request) -> TransactionPlan:
    """The plan of a transaction that also commits the groups of the request, and first checks them."""
    if not request.groups:
        return plan

    def check() -> None:
        if plan.check is not None:
            plan.check()
        for commit in request.groups:
            check_group(admin, request.model, commit)

    return replace(plan, check=check, groups=request.groups)


def check_group(admin: KafkaAdminClient, model: str, commit: GroupCommit) -> None:
    """Refuse to publish messages that another run has published, or that another consumer of the group reads too.

    Called when no older run of the model can commit any more, and before the first record.

    Raises:
        GuardError: nothing was written.
    """
    current = {partition: at.offset for partition, at in groups.committed(admin, commit.group, commit.offsets).items()}
    problem = f"model {model}: group '{commit.group}' of source {commit.source} "
    if current != commit.before and not (commit.is_empty and current == commit.offsets):
        if current == commit.offsets:
            raise GuardError(
                f"{problem}is at the end of what the source covers: these messages are published already. Nothing was written. "
                f"Run the source in the same command: dbt run --select {commit.source}+"
            )
        raise GuardError(
            f"{problem}has other offsets than when the source ran: another run or consumer committed them. Nothing was written. "
            f"Run again, with the source: dbt run --select {commit.source}+"
        )
    if groups.has_members(admin, commit.group):
        raise GuardError(
            f"{problem}has members: another consumer reads with it. Nothing was written. "
            "Stop that consumer, or use a group.id that no other consumer uses"
        )
