"""Converts rows to records (key and value) and records to rows: which columns are in the key, which in the value.

Leaves the bytes of key and value to the formats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, MapType, StructType, TimestampType

from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.formats import Field, Format, Side, avro
from dbt.adapters.upsert_kafka.kafka_client import schema_registry
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.sql import let, quote_identifier, quote_literal

KEY, VALUE, PARTITION, HEADERS, TIMESTAMP = "key", "value", "partition", "headers", "timestamp"
NULL_KEY, IS_DELETED, SEQUENCE = "null_key", "is_deleted", "sequence"
KEY_HASH, SIZE = "key_hash", "size"
ROW_HASHES = "row_hash_1", "row_hash_2"
"""128 bits, see `hashes`."""
MASKED = "(masked)"
"""Shown instead of the value of a column of plan_mask."""

# Options that don't change the encoded bytes: older schemas that can be decoded, the registry, the handling of errors.
_NOT_IN_THE_BYTES = {
    *("schemas", "refusal", "ignore_parse_errors", "docs", "schema_docs", "auto_register", "use_latest_version"),
    *("subject_name_strategy", "compatibility", *schema_registry.SETTINGS),
}
_JOINED, _DECODED, _AGAIN = "__upsert_kafka_joined", "__upsert_kafka_decoded", "__upsert_kafka_again"


@dataclass(frozen=True)
class Records:
    """The layout of the records of one model."""

    key: Side
    value: Side
    key_format: Format
    value_format: Format
    columns: tuple[str, ...]
    """The decoded columns, in the order of the SELECT."""
    mask: frozenset[str] = frozenset()
    """Columns (plan_mask, lower case) whose values are not shown."""
    knows_keys: bool = False
    """Whether all keys of the topic that this run may delete are known to have this layout. Others are hidden if there is a
    mask: they may have the values of masked columns."""

    def problems(self) -> list[str]:
        """The columns that the formats can't encode, one sentence each."""
        of_key = self.key_format.problems(self.key) if self.key.fields else []
        return of_key + self.value_format.problems(self.value)

    def prepared(self, registry: Mapping[str, Any], writes: bool) -> Records:
        """Add what the schema registry provides. Called before `encode` and `decode`."""
        # A run that is refused because of one side must not register a schema of the other.
        if writes and self.key.fields:
            self.key_format.check(self.key, registry)
        value = self.value_format.prepare(self.value, registry, writes)
        key = self.key_format.prepare(self.key, registry, writes) if self.key.fields else self.key
        return replace(self, key=key, value=value)

    @property
    def schema_refusal(self) -> str:
        """Why the schema registry would refuse the schemas; empty if it accepts them. Known after `prepared` without writing."""
        return str(self.value.options.get("refusal") or self.key.options.get("refusal") or "")

    def prepared_to_read(self, registry: Mapping[str, Any]) -> Records:
        """The same for messages of other writers. Called before `decode`."""
        key = self.key_format.prepare_to_read(self.key, registry) if self.reads_key else self.key
        return replace(self, key=key, value=self.value_format.prepare_to_read(self.value, registry))

    def encode(self, rows: DataFrame, options: ModelOptions, more: Mapping[str, Column] | None = None) -> DataFrame:
        """Encode rows to the columns `key`, `value`, `null_key` and `is_deleted` (delete_when).

        The columns `sequence`, `headers` and `timestamp` are added if the options need them.

        Args:
            more: further columns over the columns of `rows`.
        """
        names = [quote_identifier(field.column) for field in self.key.fields]
        columns = {
            KEY: F.expr(self.key_format.encode(self.key)) if names else F.lit(None).cast("binary"),
            VALUE: F.expr(self.value_format.encode(self.value)),
            NULL_KEY: F.expr(" OR ".join(f"{name} IS NULL" for name in names) or "false"),
            IS_DELETED: F.coalesce(F.expr(options.delete_when), F.lit(False)) if options.delete_when else F.lit(False),
        }
        if options.sequence_by:
            columns[SEQUENCE] = F.struct(*(F.col(quote_identifier(name)) for name in options.sequence_by))
        if options.headers:
            columns[HEADERS] = _headers(options.headers)
        if options.record_timestamp:
            columns[TIMESTAMP] = _timestamp(options.record_timestamp)
        columns |= more or {}
        return rows.select(*(column.alias(name) for name, column in columns.items()))

    def encode_to_compare(self, rows: DataFrame, options: ModelOptions, seed: int) -> DataFrame:
        """Encode rows and add `key_hash`, `row_hash_1`, `row_hash_2` and `size`, which would need a copy of the bytes each time
        later on. A row without a key has no bytes: those of csv could be the bytes of a key with an empty text.

        Args:
            seed: of the topic's hashes.
        """
        columns = {KEY_HASH: key_hash(), **dict(zip(ROW_HASHES, hashes(seed), strict=True)), SIZE: size()}
        encoded = self.encode(rows, options).withColumn(KEY, F.expr(f"CASE WHEN NOT {NULL_KEY} THEN {KEY} END"))
        return encoded.withColumns(columns)

    def mark_foreign(self, joined: DataFrame, candidates: Column) -> DataFrame:
        """Add the column `foreign`: whether the key of a candidate can't have been written by this model's key format.

        A key is foreign if decoding and encoding it does not return the same bytes.
        """
        side = self.key.lenient()
        decoded = F.when(candidates, F.expr(self.key_format.decode(side, KEY)))
        # The other columns are packed into a struct, so that the names of decoded columns can't collide with them.
        separated = joined.select(F.struct("*").alias(_JOINED), decoded.alias(_DECODED)).select(_JOINED, f"{_DECODED}.*")
        encoded_again = separated.select(f"{_JOINED}.*", F.expr(self.key_format.encode(side)).alias(_AGAIN))
        return encoded_again.withColumn("foreign", ~F.col(_AGAIN).eqNullSafe(F.col(KEY))).drop(_AGAIN)

    def decode(self, records: str, skips: bool = False) -> str:
        """A query that decodes the records of the relation or subquery `records` (key, value, partition, offset).

        Args:
            skips: skip records that can't be decoded, instead of failing.
        """
        return self.decode_parsed(self.parse(records), skips)

    def decode_parsed(self, records: str, skips: bool = False) -> str:
        """The same for records with the columns of `parsed`."""
        sides = self.read_sides()
        parts = [
            f"{format.restore(side.lenient() if skips else side.locating(), payload, f'parsed_{name}')} AS {name}"
            for name, (format, side, payload) in sides.items()
        ]
        readable = f" WHERE {' AND '.join(f'{name} IS NOT NULL' for name in sides)}" if skips else ""
        return f"SELECT {', '.join(self.picked())} FROM (SELECT {', '.join(parts)} FROM {records}){readable}"

    def parse(self, records: str) -> str:
        """A subquery over the relation or subquery `records` that adds the columns of `parsed`."""
        added = ", ".join(f"{expression} AS {column}" for column, expression in self.parsed().items())
        return f"(SELECT *, {added} FROM {records})"

    def parsed(self) -> dict[str, str]:
        """The parsed sides `parsed_v` and `parsed_k`, as SQL expressions over the records."""
        return {f"parsed_{name}": format.parse(side, payload) for name, (format, side, payload) in self.read_sides().items()}

    def read_sides(self) -> dict[str, tuple[Format, Side, str]]:
        """The sides to decode, by the names that `picked` uses (`v`, `k`): format, side and payload."""
        sides = {"v": (self.value_format, self.value, VALUE)}
        return sides | {"k": (self.key_format, self.key, KEY)} if self.reads_key else sides

    @property
    def reads_key(self) -> bool:
        """Whether a column is only in the key, so that the key must be decoded."""
        return not {field.column for field in self.value.fields}.issuperset(self.columns)

    def picked(self) -> list[str]:
        """The select list of the columns, from a decoded value `v` and, if `reads_key`, a decoded key `k`."""
        in_value = {field.column for field in self.value.fields}
        return [
            f"{'v' if name in in_value else 'k'}.{quote_identifier(name)} AS {quote_identifier(name)}" for name in self.columns
        ]

    def avro_schemas(self) -> dict[str, str]:
        """The Avro schema (JSON) of each side in an Avro format, by role."""
        sides = [(self.key_format, self.key), (self.value_format, self.value)]
        return {side.role: avro.avro_schema(side) for format, side in sides if side.fields and format.name in avro.NAMES}

    def show_key(self) -> Column:
        """The key as JSON, for messages."""
        return self._shown(self.key_format, self.key, KEY)

    def show_topic_key(self) -> Column:
        """The same of a key that the SELECT may not have."""
        return F.lit(MASKED) if self.mask and not self.knows_keys else self.show_key()

    def show_value(self, column: str) -> Column:
        """The value as JSON, for messages. A value that can't be decoded is shown unchanged, unless there is a mask."""
        return self._shown(self.value_format, self.value, column)

    def masks(self, side: Side) -> bool:
        """Whether the side has a column of `mask`, or a field of that name in a column."""
        return any(self._masks(field) for field in side.fields)

    def _masks(self, field: Field) -> bool:
        return field.column.lower() in self.mask or (bool(self.mask) and not self.mask.isdisjoint(_names_in(field.type)))

    def _shown(self, form: Format, side: Side, column: str) -> Column:
        decoded = form.decode(side.lenient(), column)
        if not self.mask:
            return F.expr(f"coalesce(to_json({decoded}), CAST({column} AS STRING))")
        members = (
            f"{quote_literal(f.column)}, " + (quote_literal(MASKED) if self._masks(f) else f"d.{quote_identifier(f.column)}")
            for f in side.fields
        )
        masked = let("d", decoded, f"named_struct({', '.join(members)})")
        return F.expr(f"CASE WHEN {decoded} IS NOT NULL THEN to_json({masked}) ELSE {quote_literal(MASKED)} END")

    def key_layout(self) -> str:
        """Everything that the bytes of a key depend on, as JSON."""
        return _layout_text(self.key_format, self.key)

    def value_layout(self) -> str:
        """The same of the value."""
        return _layout_text(self.value_format, self.value)


def _names_in(kind: DataType) -> set[str]:
    """The names of all fields inside a column of this type, in lower case."""
    if isinstance(kind, StructType):
        return {f.name.lower() for f in kind.fields}.union(*(_names_in(f.dataType) for f in kind.fields))
    if isinstance(kind, MapType):
        return _names_in(kind.keyType) | _names_in(kind.valueType)
    return _names_in(kind.elementType) if isinstance(kind, ArrayType) else set()


def _layout_text(format: Format, side: Side) -> str:
    fields = [[field.name, field.type.simpleString()] for field in side.fields]
    options = {name: value for name, value in side.options.items() if name not in _NOT_IN_THE_BYTES}
    return json.dumps({"format": format.name, "fields": fields, "options": options}, sort_keys=True)


def layout(options: ModelOptions, topic: str, schema: StructType) -> Records:
    """Assign the columns of a SELECT to key and value."""
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
    # Columns are nullable unless they are in the key, as in a Flink table. The nullability that Spark derives is not used: it
    # depends on the text of the SELECT, and would change the bytes of avro.
    value_fields = tuple(Field(f.name, f.name, f.dataType, f.name not in in_key) for f in in_value)
    return Records(
        key=Side("key", topic, key_fields, options.key_format_options),
        value=Side("value", topic, value_fields, options.value_format_options),
        key_format=formats.get(options.key_format),
        value_format=formats.get(options.value_format),
        columns=tuple(f.name for f in kept),
        mask=frozenset(name.lower() for name in options.plan_mask),
    )


def expression_problems(options: ModelOptions, rows: DataFrame) -> list[str]:
    """Problems of the options that are SQL expressions over the columns of the SELECT, one sentence each."""
    expressions = {"delete_when": options.delete_when, "record_timestamp": options.record_timestamp}
    expressions |= {f"headers['{name}']": sql for name, sql in options.headers.items()}
    problems = []
    for option, sql in expressions.items():
        if sql is None:
            continue
        try:
            [field] = rows.select(F.expr(sql)).schema.fields
        except (AnalysisException, ParseException) as error:
            problems.append(
                f"{option}={sql!r} is not a valid expression over the columns of the SELECT: {str(error).splitlines()[0]}"
            )
            continue
        if option == "delete_when" and not isinstance(field.dataType, BooleanType):
            problems.append(f"{option}={sql!r} has type {field.dataType.simpleString()}; it must be a boolean condition")
        if option == "record_timestamp" and not isinstance(field.dataType, TimestampType):
            problems.append(f"{option}={sql!r} has type {field.dataType.simpleString()}; cast it to timestamp")
    return problems


def hashes(seed: int) -> list[Column]:
    """Two 64-bit hashes of a record's key and value. Records with equal hashes count as equal, so that Spark does not have to
    shuffle values. That is wrong with a probability of 2^-128 for each change.

    xxhash64 alone is not enough: pairs of values are known whose hashes are equal with every seed, and others are computed
    easily. Nobody knows such a pair for SHA-256. The seed protects checksums, which are the XOR of hashes.

    Args:
        seed: a random number of the topic. Hashes are comparable only if their seeds are equal.
    """
    of_bytes = f"sha2(concat({KEY}, coalesce({VALUE}, X'')), 256)"
    # The size tells where the key ends, and null from an empty value.
    return [F.expr(f"xxhash64({seed}L, {number}, octet_length({VALUE}), {of_bytes})") for number in (1, 2)]


def key_hash() -> Column:
    """The hash that assigns a key to a bucket, for rows of the SELECT and of snapshots. Keys with equal hashes may differ."""
    return F.xxhash64(KEY)


def size() -> Column:
    """The size of a record's key and value in bytes."""
    return F.expr(f"coalesce(octet_length({KEY}), 0) + coalesce(octet_length({VALUE}), 0)")


def extras(frame: DataFrame) -> list[str]:
    """The optional columns of a record that `frame` has: headers and timestamp."""
    return [name for name in (HEADERS, TIMESTAMP) if name in frame.columns]


def _timestamp(sql: str) -> Column:
    """The timestamp of the record. Kafka has no timestamps before 1970; NULL means the time of the write."""
    message = f"record_timestamp={sql!r} is before 1970, which Kafka does not support: "
    refused = F.raise_error(F.concat(F.lit(message), F.expr(sql).cast("string")))
    return F.when(F.unix_millis(F.expr(sql)) < 0, refused).otherwise(F.expr(sql))


def _headers(headers: Mapping[str, str]) -> Column:
    """The headers of a record. A header whose expression is NULL is omitted."""
    pairs = [
        F.struct(F.lit(name).alias("key"), F.expr(sql).cast("string").cast("binary").alias("value"))
        for name, sql in headers.items()
    ]
    return F.filter(F.array(*pairs), lambda header: header["value"].isNotNull())
