"""Columns to records: which columns are the key, which the value, in which order, in which format.

Leaves to `formats` what the bytes look like.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.formats import Field, Format, Side
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.sql import quote_identifier

KEY, VALUE = "key", "value"
NULL_KEY = "null_key"


@dataclass(frozen=True)
class Records:
    """How one model's rows become records and back."""

    key: Side
    value: Side
    key_format: Format
    value_format: Format
    columns: tuple[str, ...]
    """The columns that a reader gets back, in the SELECT's order."""

    def problems(self) -> list[str]:
        """What the formats can't carry."""
        return self.key_format.problems(self.key) + self.value_format.problems(self.value)

    def encode(self, rows: DataFrame) -> DataFrame:
        """Rows as `key`, `value` and `null_key`: whether a column of the key is null."""
        names = [quote_identifier(field.column) for field in self.key.fields]
        return rows.select(
            F.expr(self.key_format.encode(self.key)).alias(KEY),
            F.expr(self.value_format.encode(self.value)).alias(VALUE),
            F.expr(" OR ".join(f"{name} IS NULL" for name in names)).alias(NULL_KEY),
        )

    def decode(self, records: str) -> str:
        """A query over the query or relation `records` (key, value) that gives the rows back."""
        parts = [f"{self.value_format.decode(self.value, VALUE)} AS v"]
        in_value = {field.column for field in self.value.fields}
        if not in_value.issuperset(self.columns):
            parts.append(f"{self.key_format.decode(self.key, KEY)} AS k")
        picked = [f"{'v' if name in in_value else 'k'}.{quote_identifier(name)} AS {quote_identifier(name)}" for name in self.columns]
        return f"SELECT {', '.join(picked)} FROM (SELECT {', '.join(parts)} FROM {records})"

    def show_key(self) -> Column:
        """A key's bytes as text that a person can read, for messages."""
        return F.expr(f"to_json({self.key_format.decode(self.key, KEY)})")


def layout(options: ModelOptions, topic: str, schema: StructType) -> Records:
    """Divide a SELECT's columns among key and value as the options say."""
    by_name = {field.name.lower(): field for field in schema.fields}
    key_columns = [by_name[name.lower()] for name in options.unique_key]
    prefix = options.key_fields_prefix or ""
    key_fields = tuple(Field(f.name, f.name.removeprefix(prefix), f.dataType, False) for f in key_columns)
    in_key = {field.column for field in key_fields}
    excluded = {name.lower() for name in options.exclude_columns}
    kept = [f for f in schema.fields if f.name in in_key or f.name.lower() not in excluded]
    in_value = [f for f in kept if f.name.lower() not in excluded and (options.value_fields_include == "ALL" or f.name not in in_key)]
    value_fields = tuple(Field(f.name, f.name, f.dataType, f.nullable and f.name not in in_key) for f in in_value)
    return Records(
        key=Side("key", topic, key_fields, options.key_format_options),
        value=Side("value", topic, value_fields, options.value_format_options),
        key_format=formats.get(options.key_format),
        value_format=formats.get(options.value_format),
        columns=tuple(f.name for f in kept),
    )
