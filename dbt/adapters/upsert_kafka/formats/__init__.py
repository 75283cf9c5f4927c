"""The contract of a format: columns to bytes and back, as Spark SQL expressions that run in the JVM.

A format promises that `decode(encode(row)) == row` for every type that `problems` does not name, and that the bytes are
those that Flink's upsert-kafka writes. It leaves to `records` which columns belong to the key and the value, and to
`options` the checking of option values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pyspark.sql.types import DataType

Role = Literal["key", "value"]


@dataclass(frozen=True)
class Field:
    """One column of the SELECT as a field of a record."""

    column: str
    """Name in the SELECT and in the view."""
    name: str
    """Name in the record: the column's, or the column's with `key_fields_prefix` taken off."""
    type: DataType
    nullable: bool = True


@dataclass(frozen=True)
class Side:
    """One side of a record: what a format must know to write and read it."""

    role: Role
    topic: str
    fields: tuple[Field, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    """This side's format options by their short names (`null_literal`, `timestamp_format_standard`), checked and typed."""


class Format(ABC):
    """One format; instances hold no state of a model."""

    name: ClassVar[str]

    @abstractmethod
    def problems(self, side: Side) -> list[str]:
        """Say which fields the format can't carry, one sentence each: column, type, format, what to do. No I/O."""

    @abstractmethod
    def encode(self, side: Side) -> str:
        """SQL expression over the fields' columns that gives the side's bytes (BINARY)."""

    @abstractmethod
    def decode(self, side: Side, payload: str) -> str:
        """SQL expression over the BINARY expression `payload` that gives a STRUCT of the fields by their column names."""
