"""Metrics of a DataFrame's rows, collected by the query that computes the rows instead of by a query of their own.

Works with and without Spark Connect. What is counted is the caller's choice.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql.utils import is_remote

from dbt.adapters.upsert_kafka.spark.checkpoint import checkpoint


class ObservedMetrics:
    """Aggregates over the rows of one DataFrame, available once a query has computed all of its rows."""

    def __init__(self) -> None:
        self._observation = Observation()
        self._collected: dict[str, Any] | None = None

    def observe(self, frame: DataFrame, *aggregates: Column) -> DataFrame:
        """Return `frame` with the aggregates attached; call this once per object.

        Args:
            aggregates: named with `alias`.
        """
        if not is_remote():
            return frame.observe(self._observation, *aggregates)
        # A Spark Connect server waits 100 ms for observed metrics and then answers without them. There the rows are
        # checkpointed and counted by a second query.
        rows = checkpoint(frame)
        [collected] = rows.agg(*aggregates).collect()
        self._collected = collected.asDict()
        return rows

    @property
    def values(self) -> dict[str, Any]:
        """The aggregates by name."""
        return dict(self._observation.get) if self._collected is None else self._collected
