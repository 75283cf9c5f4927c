"""The part of the adapter that a plan changes: nothing is created, and what a SELECT did not find is kept for the plan."""

from __future__ import annotations

from typing import Any

from dbt.adapters.base.meta import available
from dbt.adapters.base.relation import BaseRelation

from dbt.adapters.upsert_kafka.operations.restoring_adapter import RestoringAdapter
from dbt.adapters.upsert_kafka.options import variables
from dbt.adapters.upsert_kafka.plan import current


class PlanningAdapter(RestoringAdapter):
    """Behaves as other adapters do, unless the command of this process is a plan."""

    @available.parse(lambda *args, **kwargs: False)
    def is_dry_run(self, value: Any) -> bool:
        """Return the variable upsert_kafka_dry_run as a boolean: text of `--vars` may be 'false'. A plan is a dry run."""
        return variables.is_dry_run(value) or current.is_planning()

    def create_schema(self, relation: BaseRelation) -> None:
        if not current.is_planning():
            super().create_schema(relation)

    def explain_missing(self, schema: str, identifier: str) -> str | None:
        connection = self.connections.get_if_exists()
        if connection is not None and connection.name:
            # dbt names the connection of a thread after the node that it runs.
            current.miss(connection.name, schema, identifier)
        return super().explain_missing(schema, identifier)
