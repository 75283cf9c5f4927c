"""Format `avro`: one binary record, without a header, in the schema that Flink derives from a table's columns.

Timestamps follow `timestamp_mapping_legacy`, as in Flink:
- true (default): TIMESTAMP_NTZ is `timestamp-millis`. A row with microseconds is an error that says so, never a shortened value.
  TIMESTAMP is refused.
- false: TIMESTAMP_NTZ is `local-timestamp-micros` and TIMESTAMP `timestamp-micros`, with all digits. Flink 2.2 derives the same
  schema but writes milliseconds into it, which every reader of that schema takes for dates in 1970; we don't follow it there.

Inside of arrays, maps and structs everything may be null, as in Flink's ARRAY<…>, MAP<…> and ROW<…>.
"""

from __future__ import annotations

import json
import re
from typing import Any

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

from dbt.adapters.upsert_kafka.formats import Field, ParsedFormat, Side, checked_struct, contains_type, unsupported
from dbt.adapters.upsert_kafka.sql import quote_identifier, quote_literal, quote_map, type_text

NAMES = ("avro", "avro-confluent")
"""The formats whose records a schema of this module describes."""
NAMESPACE, RECORD_NAME = "org.apache.flink.avro.generated", "record"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIMITIVES: dict[type[DataType], Any] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    StringType: "string",
    BinaryType: "bytes",
    DateType: {"type": "int", "logicalType": "date"},
}


class Avro(ParsedFormat):
    name = "avro"

    def problems(self, side: Side) -> list[str]:
        return problems(self.name, side, legacy=_legacy(side))

    def encode(self, side: Side) -> str:
        return write_body(self.name, side, _legacy(side))

    def parse(self, side: Side, payload: str) -> str:
        return read_body(payload, side, _legacy(side))

    def checked(self, side: Side, payload: str, parsed: str) -> str:
        return read_columns(self.name, side, payload, parsed)


def avro_schema(side: Side) -> str:
    """The schema (JSON) that describes this side's records, as Flink derives it."""
    return _json(_Schema(_legacy(side)).record(side))


def _json(schema: Any) -> str:
    # As Avro for Java prints it, so that a registry without a sense for equal schemas finds the one that Flink registered.
    return json.dumps(schema, separators=(",", ":"))


def problems(format_name: str, side: Side, legacy: bool) -> list[str]:
    """What avro can't carry, for both avro formats."""

    def refusal(data_type: DataType) -> str | None:
        if isinstance(data_type, MapType) and not isinstance(data_type.keyType, StringType):
            return "a map in Avro has string keys: turn them into strings (transform_keys), or use an array of structs"
        if isinstance(data_type, TimestampType) and legacy:
            return _no_timestamp(format_name)
        if isinstance(data_type, StructType):
            names = [f.name for f in data_type.fields if not _NAME.fullmatch(f.name)]
            return f"Avro has no name {names[0]!r}: use letters, digits and underscores" if names else None
        return None

    found = unsupported(format_name, side, refusal)
    for f in side.fields:
        if not _NAME.fullmatch(f.name):
            found.append(
                f"column {f.column!r} can't be written in the {side.role} as {format_name}: Avro has no name {f.name!r}; "
                "give it an alias of letters, digits and underscores"
            )
    records = [name for f in side.fields for name in _record_names(f.name, f.type)]
    for name in sorted({name for name in records if records.count(name) > 1}):
        found.append(
            f"two structs of the {side.role} would both be named '{RECORD_NAME}_{name}' in {format_name}, "
            "which is made of the names of the column and the fields: give one of them an alias"
        )
    return found


def _record_names(name: str, data_type: DataType) -> list[str]:
    if isinstance(data_type, ArrayType):
        return _record_names(name, data_type.elementType)
    if isinstance(data_type, MapType):
        return _record_names(name, data_type.valueType)
    if isinstance(data_type, StructType):
        return [name] + [inner for f in data_type.fields for inner in _record_names(f"{name}_{f.name}", f.dataType)]
    return []


def _no_timestamp(format_name: str) -> str:
    cast = "cast it to timestamp_ntz in the SELECT"
    return f"set avro_timestamp_mapping_legacy=false, or {cast}" if format_name == "avro" else cast


def _legacy(side: Side) -> bool:
    return bool(side.options.get("timestamp_mapping_legacy", True))


class _Schema:
    """Schemas as Flink names and nests them, for one mapping of timestamps."""

    def __init__(self, legacy: bool, for_spark: bool = False) -> None:
        self.legacy = legacy
        # The logical type is not in the bytes; Spark takes a TIMESTAMP_NTZ only as a local timestamp.
        self.ntz = ("local-timestamp-millis" if for_spark else "timestamp-millis") if legacy else "local-timestamp-micros"

    def record(self, side: Side) -> dict[str, Any]:
        fields = [(f.name, f.type, f.nullable) for f in side.fields]
        return {"type": "record", "name": RECORD_NAME, "namespace": NAMESPACE, "fields": self._fields(RECORD_NAME, fields)}

    def _fields(self, name: str, fields: list[tuple[str, DataType, bool]]) -> list[dict[str, Any]]:
        members: list[dict[str, Any]] = []
        for field_name, data_type, nullable in fields:
            schema = self._of(data_type, f"{name}_{field_name}")
            member = {"name": field_name, "type": ["null", schema] if nullable else schema}
            members.append({**member, "default": None} if nullable else member)
        return members

    def _of(self, data_type: DataType, name: str) -> Any:
        if isinstance(data_type, DecimalType):
            return {"type": "bytes", "logicalType": "decimal", "precision": data_type.precision, "scale": data_type.scale}
        if isinstance(data_type, TimestampNTZType):
            return {"type": "long", "logicalType": self.ntz}
        if isinstance(data_type, TimestampType):
            return {"type": "long", "logicalType": "timestamp-micros"}
        if isinstance(data_type, ArrayType):
            return {"type": "array", "items": ["null", self._of(data_type.elementType, name)]}
        if isinstance(data_type, MapType):
            return {"type": "map", "values": ["null", self._of(data_type.valueType, name)]}
        if isinstance(data_type, StructType):
            return {
                "type": "record",
                "name": name,
                "fields": self._fields(name, [(f.name, f.dataType, True) for f in data_type.fields]),
            }
        return _PRIMITIVES[type(data_type)]


def write_body(format_name: str, side: Side, legacy: bool) -> str:
    """SQL expression of the record's bytes; NULL if a field that can't be null is."""
    schema = _json(_Schema(legacy, for_spark=True).record(side))
    members = ", ".join(f"{quote_literal(f.name)}, {_value(format_name, side, f, legacy)}" for f in side.fields)
    record = f"to_avro(named_struct({members}), {quote_literal(schema)})"
    required = [f"{quote_identifier(f.column)} IS NOT NULL" for f in side.fields if not f.nullable]
    return f"CASE WHEN {' AND '.join(required)} THEN {record} END" if required else record


def _value(format_name: str, side: Side, field: Field, legacy: bool) -> str:
    expression = quote_identifier(field.column)
    if not legacy or not contains_type(field.type, TimestampNTZType):
        return expression
    otherwise = ", or set avro_timestamp_mapping_legacy=false" if format_name == "avro" else ""
    message = quote_literal(
        f"Topic {side.topic}: column {field.column!r} has microseconds, which timestamp-millis can't hold: "
        f"shorten it in the SELECT (date_trunc){otherwise}: "
    )

    def checked(x: str, t: DataType) -> str:
        if not contains_type(t, TimestampNTZType):
            return x
        if isinstance(t, ArrayType):
            return f"transform({x}, x -> {checked('x', t.elementType)})"
        if isinstance(t, MapType):
            return f"transform_values({x}, (k, x) -> {checked('x', t.valueType)})"
        if isinstance(t, StructType):
            members = [f"{quote_literal(f.name)}, {checked(f'{x}.{quote_identifier(f.name)}', f.dataType)}" for f in t.fields]
            return f"CASE WHEN {x} IS NOT NULL THEN named_struct({', '.join(members)}) END"
        # Offsets of time zones are whole seconds: the session's does not matter here.
        lost = f"unix_micros(CAST({x} AS TIMESTAMP)) % 1000 != 0"
        return f"if({lost}, raise_error(concat({message}, CAST({x} AS STRING))), {x})"

    return checked(expression, field.type)


def read_body(payload: str, side: Side, legacy: bool, writer_schema: str | None = None) -> str:
    """SQL expression of an ARRAY with the one decoded record; NULL or of another size if the bytes are not such a record.

    `from_avro` gives a record of NULLs for bytes that it can't read, and does not mind bytes that are left over; as the only
    element of an array a record shows both.
    """
    reader = _Schema(legacy, for_spark=True).record(side)
    options = {"mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}
    written: Any = reader
    if writer_schema is not None:
        written = json.loads(writer_schema)
        reader = {**reader, "name": written["name"], "namespace": written.get("namespace", "")}
        options["avroSchema"] = _json({"type": "array", "items": reader})
    schema = _json({"type": "array", "items": written})
    return f"from_avro(concat(X'02', {payload}, X'00'), {quote_literal(schema)}, {quote_map(options)})"


def read_columns(format_name: str, side: Side, payload: str, records: str) -> str:
    """SQL expression of the STRUCT of columns from what `read_body` gave, which has the name `records`."""
    columns = {f.column: _restored(f"{records}[0].{quote_identifier(f.name)}", f.type) for f in side.fields}
    return checked_struct(format_name, side, payload, columns, f"coalesce(size({records}), 0) = 1", is_text=False)


def _restored(expression: str, data_type: DataType) -> str:
    """The value in its Spark type: Avro has no integers smaller than int."""
    if not contains_type(data_type, (ByteType, ShortType)):
        return expression
    if isinstance(data_type, ArrayType):
        return f"transform({expression}, x -> {_restored('x', data_type.elementType)})"
    if isinstance(data_type, MapType):
        return f"transform_values({expression}, (k, x) -> {_restored('x', data_type.valueType)})"
    if isinstance(data_type, StructType):
        members = [
            f"{quote_literal(f.name)}, {_restored(f'{expression}.{quote_identifier(f.name)}', f.dataType)}"
            for f in data_type.fields
        ]
        return f"CASE WHEN {expression} IS NOT NULL THEN named_struct({', '.join(members)}) END"
    return f"try_cast({expression} AS {type_text(data_type)})"
