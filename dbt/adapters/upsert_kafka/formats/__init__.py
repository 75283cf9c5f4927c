"""The contract of a format: columns to bytes and back, as Spark SQL expressions that run in the JVM.

A format promises that `decode(encode(row)) == row` for every type that `problems` does not name, and that the bytes are
those that Flink's upsert-kafka writes. It leaves to `records` which columns belong to the key and the value, and to
`options` the checking of option values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, ClassVar, Literal

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.sql import let, quote_literal

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
    """This side's format options by their short names (`null_literal`, `timestamp_format_standard`), checked and typed.

    Every format knows `on_decode_error`: `fail` (default) ends the query with an error that shows the record, `skip` decodes a
    payload that the format can't read to NULL, which the view leaves out.
    """

    def lenient(self) -> Side:
        """The same side, where a payload that can't be decoded is NULL."""
        return replace(self, options={**self.options, "on_decode_error": "skip"})


class Format(ABC):
    """One format; instances hold no state of a model."""

    name: ClassVar[str]

    @abstractmethod
    def problems(self, side: Side) -> list[str]:
        """Say which fields the format can't carry, one sentence each: column, type, format, what to do. No I/O."""

    def prepare(self, side: Side, registry: Mapping[str, Any], writes: bool) -> Side:
        """The side with what only a service knows; comes before `encode` and `decode`. Most formats need none.

        Args:
            registry: the profile's `schema_registry`.
            writes: whether records will be written. If not, nothing is registered, only checked.
        """
        return side

    def prepare_to_read(self, side: Side, registry: Mapping[str, Any]) -> Side:
        """The side for messages of other writers; comes before `decode`. Nothing is registered or checked."""
        return side

    @abstractmethod
    def encode(self, side: Side) -> str:
        """SQL expression over the fields' columns that gives the side's bytes (BINARY)."""

    @abstractmethod
    def decode(self, side: Side, payload: str) -> str:
        """SQL expression over the BINARY expression `payload` that gives a STRUCT of the fields by their column names.

        NULL for a NULL payload. Whether a payload that can't be decoded fails or gives NULL: `on_decode_error`.
        """

    def parse(self, side: Side, payload: str) -> str:
        """The first half of `decode`, for a query that makes it a column of its own: Spark then compiles both halves."""
        return payload

    def restore(self, side: Side, payload: str, parsed: str) -> str:
        """The second half of `decode`, over the column `parsed` with what `parse` gave."""
        return self.decode(side, payload)


class ParsedFormat(Format):
    """A format that a function of Spark's parses; what that gave is checked and turned into the columns."""

    @abstractmethod
    def parse(self, side: Side, payload: str) -> str:
        """SQL expression of what Spark's function gives for the payload."""

    @abstractmethod
    def checked(self, side: Side, payload: str, parsed: str) -> str:
        """SQL expression of the STRUCT of columns from a column or variable `parsed`; the payload is not NULL."""

    def restore(self, side: Side, payload: str, parsed: str) -> str:
        return f"CASE WHEN {payload} IS NOT NULL THEN {self.checked(side, payload, parsed)} END"

    def decode(self, side: Side, payload: str) -> str:
        return f"CASE WHEN {payload} IS NOT NULL THEN {let('r', self.parse(side, payload), self.checked(side, payload, 'r'))} END"


_FORMATS = {
    "csv": "csv.Csv",
    "json": "json.Json",
    "avro": "avro.Avro",
    "avro-confluent": "avro_confluent.AvroConfluent",
    "raw": "raw.Raw",
    "debezium-json": "debezium_json.DebeziumJson",
    "canal-json": "canal_json.CanalJson",
}


def names() -> list[str]:
    """The formats that a model may name."""
    return list(_FORMATS)


def get(name: str) -> Format:
    """The format of this name."""
    if name not in _FORMATS:
        raise OptionsError(f"format {name!r} is unknown: use one of {', '.join(_FORMATS)}")
    module, cls = _FORMATS[name].split(".")
    instance = getattr(import_module(f"{__name__}.{module}"), cls)()
    assert isinstance(instance, Format)
    return instance


_SCALARS = (
    BooleanType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
    StringType,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
)


def contains_type(data_type: DataType, wanted: type[DataType] | tuple[type[DataType], ...]) -> bool:
    """Whether a value of the type holds a value of one of the `wanted` types, at any depth; keys of maps don't count."""
    if isinstance(data_type, ArrayType):
        return contains_type(data_type.elementType, wanted)
    if isinstance(data_type, MapType):
        return contains_type(data_type.valueType, wanted)
    if isinstance(data_type, StructType):
        return any(contains_type(f.dataType, wanted) for f in data_type.fields)
    return isinstance(data_type, wanted)


def unsupported(format_name: str, side: Side, refusal: Callable[[DataType], str | None]) -> list[str]:
    """One sentence per field whose type, or a type inside it, no format carries or `refusal` gives a reason against."""

    def reason(data_type: DataType) -> str | None:
        if found := refusal(data_type):
            return found
        if isinstance(data_type, ArrayType):
            return reason(data_type.elementType)
        if isinstance(data_type, MapType):
            return reason(data_type.keyType) or reason(data_type.valueType)
        if isinstance(data_type, StructType):
            return next((found for f in data_type.fields if (found := reason(f.dataType))), None)
        if not isinstance(data_type, _SCALARS):
            return "cast the column to a type that it can carry (string, for example) in the SELECT"
        return None

    return [
        f"column {f.column!r} of type {f.type.simpleString()} can't be written in the {side.role} as {format_name}: {why}"
        for f in side.fields
        if (why := reason(f.type))
    ]


def checked_struct(
    format_name: str, side: Side, payload: str, columns: Mapping[str, str], readable: str, is_text: bool = True
) -> str:
    """A STRUCT of `columns` (name: expression) where the condition `readable` holds, else what `on_decode_error` says."""
    struct = "named_struct(" + ", ".join(f"{quote_literal(c)}, {e}" for c, e in columns.items()) + ")"
    if side.options.get("on_decode_error", "fail") == "skip":
        return f"CASE WHEN {readable} THEN {struct} END"
    message = f"Topic {side.topic}: a {side.role} is not {format_name} with the columns of this model: "
    shown = f"CAST({payload} AS STRING)" if is_text else f"hex({payload})"
    return f"CASE WHEN {readable} THEN {struct} ELSE raise_error(concat({quote_literal(message)}, left({shown}, 200))) END"
