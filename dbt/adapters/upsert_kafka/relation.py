"""Relations of this adapter: Spark's, and beside a topic's view the catalog table that shows its raw records."""

from __future__ import annotations

from dataclasses import dataclass

from dbt.adapters.contracts.relation import RelationType
from dbt.adapters.spark.relation import SparkRelation

TOPIC_SUFFIX = "__topic"


@dataclass(frozen=True, eq=False, repr=False)
class UpsertKafkaRelation(SparkRelation):
    """A view, a table, or the view of a topic."""

    @property
    def topic_table(self) -> UpsertKafkaRelation:
        """`<alias>__topic`: the raw records below the view `<alias>`."""
        return self.incorporate(path={"identifier": f"{self.identifier}{TOPIC_SUFFIX}"}, type=RelationType.Table)
