"""Columns to records: which columns are the key, which the value, in which order, in which format.

Leaves to `formats` what the bytes look like.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructType, TimestampType

from dbt.adapters.upsert_kafka import formats, schema_registry
from dbt.adapters.upsert_kafka.formats import Field, Format, Side, avro
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.sql import quote_identifier

KEY, VALUE, PARTITION, HEADERS, TIMESTAMP = "key", "value", "partition", "headers", "timestamp"
NULL_KEY, DOOMED, SEQUENCE = "null_key", "doomed", "sequence"
KEY_HASH, ROW_HASH, SIZE = "key_hash", "row_hash", "size"
# 64 bits stand for a value's bytes, so that values need not travel. A change is missed if old and new value of one key have the
# same: one of 10^19 changes.
VALUE_HASH = f"xxhash64({VALUE})"


# Older schemas that can be read, where the registry is, and what readers do say nothing of the bytes that are written.
_NOT_IN_THE_BYTES = {"schemas", "ignore_parse_errors", *schema_registry.SETTINGS}
_JOINED, _DECODED, _AGAIN = "__upsert_kafka_joined", "__upsert_kafka_decoded", "__upsert_kafka_again"


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
        of_key = self.key_format.problems(self.key) if self.key.fields else []
        return of_key + self.value_format.problems(self.value)

    def prepared(self, registry: Mapping[str, Any], writes: bool) -> Records:
        """With what only the schema registry knows; comes before `encode` and `decode`."""
        key = self.key_format.prepare(self.key, registry, writes) if self.key.fields else self.key
        return replace(self, key=key, value=self.value_format.prepare(self.value, registry, writes))

    def prepared_to_read(self, registry: Mapping[str, Any]) -> Records:
        """The same for messages of other writers."""
        key = self.key_format.prepare_to_read(self.key, registry) if self.reads_key else self.key
        return replace(self, key=key, value=self.value_format.prepare_to_read(self.value, registry))

    def encode(self, rows: DataFrame, options: ModelOptions) -> DataFrame:
        """Rows as `key`, `value`, and what the options say of each: `null_key`, `doomed` (delete_when), `sequence`, `headers`,
        `timestamp`."""
        names = [quote_identifier(field.column) for field in self.key.fields]
        columns = {
            KEY: F.expr(self.key_format.encode(self.key)) if names else F.lit(None).cast("binary"),
            VALUE: F.expr(self.value_format.encode(self.value)),
            NULL_KEY: F.expr(" OR ".join(f"{name} IS NULL" for name in names) or "false"),
            DOOMED: F.coalesce(F.expr(options.delete_when), F.lit(False)) if options.delete_when else F.lit(False),
        }
        if options.sequence_by:
            columns[SEQUENCE] = F.struct(*(F.col(quote_identifier(name)) for name in options.sequence_by))
        if options.headers:
            columns[HEADERS] = _headers(options.headers)
        if options.record_timestamp:
            columns[TIMESTAMP] = _timestamp(options.record_timestamp)
        return rows.select(*(column.alias(name) for name, column in columns.items()))

    def encode_to_compare(self, rows: DataFrame, options: ModelOptions) -> DataFrame:
        """The same with what is asked of the bytes later, each time from a copy of them: `key_hash`, `row_hash`, `size`."""
        columns = {KEY_HASH: key_hash(), ROW_HASH: F.expr(VALUE_HASH), SIZE: size()}
        return self.encode(rows, options).withColumns(columns)

    def mark_foreign(self, joined: DataFrame, candidates: Column) -> DataFrame:
        """Add `foreign`: whether a candidate's key bytes are none that this model's key format writes."""
        side = self.key.lenient()
        decoded = F.when(candidates, F.expr(self.key_format.decode(side, KEY)))
        # The decoded columns stand alone, so that no name of the user's can meet one of ours.
        apart = joined.select(F.struct("*").alias(_JOINED), decoded.alias(_DECODED)).select(_JOINED, f"{_DECODED}.*")
        back = apart.select(f"{_JOINED}.*", F.expr(self.key_format.encode(side)).alias(_AGAIN))
        return back.withColumn("foreign", ~F.col(_AGAIN).eqNullSafe(F.col(KEY))).drop(_AGAIN)

    def decode(self, records: str, skips: bool = False) -> str:
        """A query over the query or relation `records` (key, value) that gives the rows back.

        Args:
            skips: leave out what can't be decoded, instead of failing.
        """
        sides = self.read_sides()
        parts = [
            f"{format.restore(side.lenient() if skips else side, payload, f'parsed_{name}')} AS {name}"
            for name, (format, side, payload) in sides.items()
        ]
        readable = f" WHERE {' AND '.join(f'{name} IS NOT NULL' for name in sides)}" if skips else ""
        return f"SELECT {', '.join(self.picked())} FROM (SELECT {', '.join(parts)} FROM {self.parse(records)}){readable}"

    def parse(self, records: str) -> str:
        """A subquery over the query or relation `records` that adds the sides as parsed, `parsed_v` and `parsed_k`."""
        parsed = [
            f"{format.parse(side, payload)} AS parsed_{name}" for name, (format, side, payload) in self.read_sides().items()
        ]
        return f"(SELECT *, {', '.join(parsed)} FROM {records})"

    def read_sides(self) -> dict[str, tuple[Format, Side, str]]:
        """What must be decoded for the columns, by the name that `picked` gives it: format, side and payload."""
        sides = {"v": (self.value_format, self.value, VALUE)}
        return sides | {"k": (self.key_format, self.key, KEY)} if self.reads_key else sides

    @property
    def reads_key(self) -> bool:
        """Whether a column is in the key only."""
        return not {field.column for field in self.value.fields}.issuperset(self.columns)

    def picked(self) -> list[str]:
        """The columns, from a decoded value `v` and, if `reads_key`, a decoded key `k`."""
        in_value = {field.column for field in self.value.fields}
        return [
            f"{'v' if name in in_value else 'k'}.{quote_identifier(name)} AS {quote_identifier(name)}" for name in self.columns
        ]

    def avro_schemas(self) -> dict[str, str]:
        """The schema (JSON) of each side whose format has one, by role."""
        sides = [(self.key_format, self.key), (self.value_format, self.value)]
        return {side.role: avro.avro_schema(side) for format, side in sides if side.fields and format.name in avro.NAMES}

    def show_key(self) -> Column:
        """A key's bytes as text that a person can read, for messages."""
        return _shown(self.key_format, self.key, KEY)

    def show_value(self, column: str) -> Column:
        """A value's bytes as text that a person can read; a value that can't be decoded as it is."""
        return _shown(self.value_format, self.value, column)

    def key_layout(self) -> str:
        """What must stay the same for a key's bytes to stay the same."""
        fields = [[field.name, field.type.simpleString()] for field in self.key.fields]
        options = {name: value for name, value in self.key.options.items() if name not in _NOT_IN_THE_BYTES}
        return json.dumps({"format": self.key_format.name, "fields": fields, "options": options}, sort_keys=True)


def layout(options: ModelOptions, topic: str, schema: StructType) -> Records:
    """Divide a SELECT's columns among key and value as the options say."""
    by_name = {field.name.lower(): field for field in schema.fields}
    key_columns = [by_name[name.lower()] for name in options.unique_key]
    prefix = options.key_fields_prefix or ""
    key_fields = tuple(Field(f.name, f.name.removeprefix(prefix), f.dataType, False) for f in key_columns)
    in_key = {field.column for field in key_fields}
    excluded = {name.lower() for name in options.exclude_columns}
    kept = [f for f in schema.fields if f.name in in_key or f.name.lower() not in excluded]
    in_value = [
        f for f in kept if f.name.lower() not in excluded and (options.value_fields_include == "ALL" or f.name not in in_key)
    ]
    # As in a Flink table, whose columns may be null unless they are in the key. What Spark finds out about a SELECT's nulls
    # changes with its text, and would change the bytes of avro with it.
    value_fields = tuple(Field(f.name, f.name, f.dataType, f.name not in in_key) for f in in_value)
    return Records(
        key=Side("key", topic, key_fields, options.key_format_options),
        value=Side("value", topic, value_fields, options.value_format_options),
        key_format=formats.get(options.key_format),
        value_format=formats.get(options.value_format),
        columns=tuple(f.name for f in kept),
    )


def _shown(form: Format, side: Side, column: str) -> Column:
    return F.expr(f"coalesce(to_json({form.decode(side.lenient(), column)}), CAST({column} AS STRING))")


def expression_problems(options: ModelOptions, rows: DataFrame) -> list[str]:
    """What is wrong with the SQL expressions among the options, over the SELECT's columns."""
    expressions = {"delete_when": options.delete_when, "record_timestamp": options.record_timestamp}
    expressions |= {f"headers['{name}']": sql for name, sql in options.headers.items()}
    problems = []
    for option, sql in expressions.items():
        if sql is None:
            continue
        try:
            [field] = rows.select(F.expr(sql)).schema.fields
        except (AnalysisException, ParseException) as error:
            problems.append(f"{option}={sql!r} is not an expression over the SELECT's columns: {str(error).splitlines()[0]}")
            continue
        if option == "delete_when" and not isinstance(field.dataType, BooleanType):
            problems.append(f"{option}={sql!r} is a {field.dataType.simpleString()}: it must be a condition, true or false")
        if option == "record_timestamp" and not isinstance(field.dataType, TimestampType):
            problems.append(f"{option}={sql!r} is a {field.dataType.simpleString()}: it must be a timestamp; cast it")
    return problems


def key_hash() -> Column:
    """Of rows and snapshots alike."""
    return F.xxhash64(KEY)


def size() -> Column:
    """Bytes of a record's key and value together."""
    return F.coalesce(F.octet_length(KEY), F.lit(0)) + F.coalesce(F.octet_length(VALUE), F.lit(0))


def extras(frame: DataFrame) -> list[str]:
    """The columns that a record has beside key, value and partition, where the options ask for them."""
    return [name for name in (HEADERS, TIMESTAMP) if name in frame.columns]


def _timestamp(sql: str) -> Column:
    """The record's time; Kafka has none before 1970, and null is the time of the write."""
    message = f"record_timestamp={sql!r} is before 1970, which Kafka can't carry: "
    refused = F.raise_error(F.concat(F.lit(message), F.expr(sql).cast("string")))
    return F.when(F.unix_millis(F.expr(sql)) < 0, refused).otherwise(F.expr(sql))


def _headers(headers: Mapping[str, str]) -> Column:
    """The headers of a record; one whose expression is null is left out."""
    pairs = [
        F.struct(F.lit(name).alias("key"), F.expr(sql).cast("string").cast("binary").alias("value"))
        for name, sql in headers.items()
    ]
    return F.filter(F.array(*pairs), lambda header: header["value"].isNotNull())
