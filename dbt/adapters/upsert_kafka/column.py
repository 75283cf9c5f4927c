"""Columns with Spark's types, for dbt and packages that ask for the kind of a type."""

from __future__ import annotations

from dataclasses import dataclass

from dbt.adapters.base.column import Column
from dbt.adapters.spark.column import SparkColumn


@dataclass(repr=False)
class UpsertKafkaColumn(SparkColumn):
    """Replaces dbt-spark's type checks, which know the types of Postgres."""

    def is_string(self) -> bool:
        return self._kind in ("string", "varchar", "char")

    def is_integer(self) -> bool:
        return self._kind in ("tinyint", "smallint", "int", "bigint")

    def is_numeric(self) -> bool:
        return self._kind == "decimal"

    def is_float(self) -> bool:
        return self._kind in ("float", "double")

    def can_expand_to(self, other_column: Column) -> bool:
        """Never: a string in Spark has no maximum size."""
        return False

    @property
    def _kind(self) -> str:
        return self.dtype.lower().partition("(")[0]
