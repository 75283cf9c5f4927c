"""The contract of a format: it encodes columns to bytes and decodes them, as Spark SQL expressions that run in the JVM.

A format promises:
- `decode(encode(row)) == row` for every column type that `problems` does not report. The docstring of `csv` lists its exceptions;
- the same bytes that Flink's format of the same name writes;
- no I/O, except in `prepare` and `prepare_to_read`.

A format does not choose the columns of key and value (see `records`) and does not check option values (see `options`).
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
    """Name in the record: that of the column, without `key_fields_prefix` in the key."""
    type: DataType
    nullable: bool = True


@dataclass(frozen=True)
class Side:
    """The key or the value of a record: everything that a format needs to encode and decode it."""

    role: Role
    topic: str
    fields: tuple[Field, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    """The format options of this side by their short names (`null_literal`, `timestamp_format_standard`), checked and typed.

    Every format has the internal option `on_decode_error`. `fail` (default): a payload that can't be decoded fails the query with
    a message that shows the payload. `locate`: so it does, and the message names partition and offset, which must be columns of
    the relation. `skip`: it is decoded to NULL.
    """

    def lenient(self) -> Side:
        """The same side with `on_decode_error=skip`."""
        return replace(self, options={**self.options, "on_decode_error": "skip"})

    def locating(self) -> Side:
        """The same side with `on_decode_error=locate`."""
        return replace(self, options={**self.options, "on_decode_error": "locate"})


class Format(ABC):
    """One format. Instances have no state."""

    name: ClassVar[str]

    @abstractmethod
    def problems(self, side: Side) -> list[str]:
        """The fields that the format can't encode. One sentence for each: column, type, format and what to do."""

    def check(self, side: Side, registry: Mapping[str, Any]) -> None:  # noqa: B027 most formats need no service
        """Raise what `prepare` would raise. Registers nothing."""

    def prepare(self, side: Side, registry: Mapping[str, Any], writes: bool) -> Side:
        """Add what an external service provides, such as schema ids. Called before `encode` and `decode`.

        Args:
            registry: `schema_registry` of the profile.
            writes: whether records will be written. If not, schemas are checked but not registered.
        """
        return side

    def prepare_to_read(self, side: Side, registry: Mapping[str, Any]) -> Side:
        """The same for messages of other writers, called before `decode`. Nothing is registered or checked."""
        return side

    @abstractmethod
    def encode(self, side: Side) -> str:
        """SQL expression over the columns of the fields that returns the encoded side (BINARY)."""

    @abstractmethod
    def decode(self, side: Side, payload: str) -> str:
        """SQL expression that decodes the BINARY expression `payload` to a STRUCT of the columns.

        Returns NULL for a NULL payload. The option `on_decode_error` applies to a payload that can't be decoded.
        """

    def parse(self, side: Side, payload: str) -> str:
        """The first step of `decode`. A query selects it as a column, because Spark generates code for the steps separately."""
        return payload

    def restore(self, side: Side, payload: str, parsed: str) -> str:
        """The second step of `decode`. `parsed` is the name of the column with the result of `parse`."""
        return self.decode(side, payload)


class ParsedFormat(Format):
    """A format with a parser in Spark, such as `from_json`. Its result is checked and converted to the columns."""

    @abstractmethod
    def parse(self, side: Side, payload: str) -> str:
        """SQL expression that calls Spark's parser."""

    @abstractmethod
    def to_columns(self, side: Side, payload: str, parsed: str) -> str:
        """SQL expression that returns the STRUCT of columns. `parsed` is a column or variable; the payload is not NULL."""

    def restore(self, side: Side, payload: str, parsed: str) -> str:
        return f"CASE WHEN {payload} IS NOT NULL THEN {self.to_columns(side, payload, parsed)} END"

    def decode(self, side: Side, payload: str) -> str:
        return (
            f"CASE WHEN {payload} IS NOT NULL THEN {let('r', self.parse(side, payload), self.to_columns(side, payload, 'r'))} END"
        )


SKIP_HINT = ". Set ignore_parse_errors=true in the model that reads it to skip such records."

_FORMATS = {
    "csv": "csv.Csv",
    "json": "json.Json",
    "avro": "avro.Avro",
    "avro-confluent": "avro_confluent.AvroConfluent",
    "json-schema-confluent": "json_schema_confluent.JsonSchemaConfluent",
    "raw": "raw.Raw",
    "debezium-json": "debezium_json.DebeziumJson",
    "canal-json": "canal_json.CanalJson",
}


def names() -> list[str]:
    """The names of all formats."""
    return list(_FORMATS)


def get(name: str) -> Format:
    """The format of this name."""
    if name not in _FORMATS:
        raise OptionsError(f"format {name!r} is unknown; use one of {', '.join(_FORMATS)}")
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
    """Whether the type is, or contains at any depth, one of the `wanted` types. Keys of maps are ignored."""
    if isinstance(data_type, ArrayType):
        return contains_type(data_type.elementType, wanted)
    if isinstance(data_type, MapType):
        return contains_type(data_type.valueType, wanted)
    if isinstance(data_type, StructType):
        return any(contains_type(f.dataType, wanted) for f in data_type.fields)
    return isinstance(data_type, wanted)


def unsupported(format_name: str, side: Side, refusal: Callable[[DataType], str | None]) -> list[str]:
    """One sentence for each field with an unsupported type, at any depth.

    Args:
        refusal: returns why the format does not support a type, or None. Types that no format supports are checked here.
    """

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
            return "cast the column to a supported type (for example string) in the SELECT"
        return None

    return [
        f"column {f.column!r} of type {f.type.simpleString()} can't be written in the {side.role} as {format_name}: {why}"
        for f in side.fields
        if (why := reason(f.type))
    ]


def checked_struct(
    format_name: str, side: Side, payload: str, columns: Mapping[str, str], readable: str, is_text: bool = True
) -> str:
    """SQL expression that returns a STRUCT of `columns` (name: expression) if the condition `readable` is true.

    Otherwise `on_decode_error` decides: the expression fails with the payload in its message, or returns NULL.
    """
    struct = "named_struct(" + ", ".join(f"{quote_literal(c)}, {e}" for c, e in columns.items()) + ")"
    on_error = side.options.get("on_decode_error", "fail")
    if on_error == "skip":
        return f"CASE WHEN {readable} THEN {struct} END"
    place = quote_literal(f"Topic {side.topic}")
    if on_error == "locate":
        place += ", ', partition ', partition, ', offset ', offset"
    what = quote_literal(f": the {side.role} is not {format_name} with the columns of this model: ")
    shown = f"CAST({payload} AS STRING)" if is_text else f"hex({payload})"
    error = f"raise_error(concat({place}, {what}, left({shown}, 200), {quote_literal(SKIP_HINT)}))"
    return f"CASE WHEN {readable} THEN {struct} ELSE {error} END"
