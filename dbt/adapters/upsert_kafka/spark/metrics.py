"""Count rows while they pass by, instead of in a pass of its own, on every kind of Spark."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql.utils import is_remote

from dbt.adapters.upsert_kafka.held import hold


class Tally:
    """Aggregates of a frame's rows, known once what is made of them is computed."""

    def __init__(self) -> None:
        self._seen = Observation()
        self._counted: dict[str, Any] | None = None

    def of(self, frame: DataFrame, *aggregates: Column) -> DataFrame:
        """The same rows, watched; each tally watches one frame."""
        if not is_remote():
            return frame.observe(self._seen, *aggregates)
        # A Spark Connect server waits 100 ms for what it observed and then answers without: there the rows are kept and counted.
        kept = hold(frame)
        [counted] = kept.agg(*aggregates).collect()
        self._counted = counted.asDict()
        return kept

    @property
    def found(self) -> dict[str, Any]:
        """The aggregates by their names."""
        return dict(self._seen.get) if self._counted is None else self._counted
