"""Relations of this adapter: Spark's, and beside a topic's view the tables that show its raw records and keep checksums of it."""

from __future__ import annotations

from dataclasses import dataclass

from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.spark.relation import SparkRelation

TOPIC_SUFFIX, SNAPSHOT_SUFFIX = "__topic", "__snapshot"


@dataclass(frozen=True, eq=False, repr=False)
class UpsertKafkaRelation(SparkRelation):
    """A view, a table, or the view of a topic."""

    @property
    def topic_table(self) -> UpsertKafkaRelation:
        """`<alias>__topic`: the raw records below the view `<alias>`."""
        return self._beside(TOPIC_SUFFIX)

    @property
    def snapshot_table(self) -> UpsertKafkaRelation:
        """`<alias>__snapshot`: what the last run of a large model left in the topic, as checksums."""
        return self._beside(SNAPSHOT_SUFFIX)

    def _beside(self, suffix: str) -> UpsertKafkaRelation:
        return self.incorporate(path={"identifier": f"{self.identifier}{suffix}"}, type=RelationType.Table)
