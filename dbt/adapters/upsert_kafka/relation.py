"""Relations of this adapter: Spark's, and the names of the helper tables of a topic.

Helper tables are in a schema of their own, so that their names can't collide with those of the user, and wildcards in the user's
schema don't find them. Leaves creating and dropping them to `catalog.views` and `publish.snapshots`.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.spark.relation import SparkRelation

HELPER_SCHEMA_SUFFIX = "__kafka"
TOPIC_SUFFIX, SNAPSHOT_SUFFIX = "__topic", "__snapshot"


@dataclass(frozen=True, eq=False, repr=False)
class UpsertKafkaRelation(SparkRelation):
    """A view, a table, or the view that reads a topic."""

    @property
    def topic_table(self) -> UpsertKafkaRelation:
        """`<schema>__kafka.<alias>__topic`: the raw records below the view `<schema>.<alias>`."""
        return self._helper_table(TOPIC_SUFFIX)

    @property
    def snapshot_table(self) -> UpsertKafkaRelation:
        """`<schema>__kafka.<alias>__snapshot`: what the last run of a large model left in the topic, as checksums."""
        return self._helper_table(SNAPSHOT_SUFFIX)

    @property
    def former_helper_tables(self) -> list[UpsertKafkaRelation]:
        """The names of the helper tables up to version 0.1.0: they were in the schema of the view."""
        names = [f"{self.identifier}{suffix}" for suffix in (TOPIC_SUFFIX, SNAPSHOT_SUFFIX)]
        return [self.incorporate(path={"identifier": name}, type=RelationType.Table) for name in names]

    def _helper_table(self, suffix: str) -> UpsertKafkaRelation:
        path = {"schema": f"{self.schema}{HELPER_SCHEMA_SUFFIX}", "identifier": f"{self.identifier}{suffix}"}
        return self.incorporate(path=path, type=RelationType.Table)
