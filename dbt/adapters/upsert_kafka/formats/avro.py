"""Format `avro`: one binary record without a header, in the schema that Flink derives from the columns of a table.

TIMESTAMP is `timestamp-micros`. `timestamp_mapping_legacy` decides the mapping of TIMESTAMP_NTZ, as in Flink:
- true (default): `timestamp-millis`. A value with microseconds is an error; values are never truncated. Flink does not write its
  TIMESTAMP_LTZ with this mapping, so there are no bytes of Flink that a TIMESTAMP would have to equal.
- false: `local-timestamp-micros`. This deviates from Flink 2.2, which derives the same schemas but writes milliseconds, so that
  readers get dates in 1970.

Elements of arrays, values of maps and fields of structs are nullable, as in Flink's ARRAY<…>, MAP<…> and ROW<…>.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dbt.adapters.upsert_kafka.errors import SchemaRegistryError
from dbt.adapters.upsert_kafka.formats import Field, ParsedFormat, Side, checked_struct, contains_type, unsupported
from dbt.adapters.upsert_kafka.formats import avro_reading as reading
from dbt.adapters.upsert_kafka.sql import quote_identifier, quote_literal, quote_map, type_text

NAMES = ("avro", "avro-confluent")
"""The formats that use the schemas of this module."""
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
        return problems(self.name, side)

    def encode(self, side: Side) -> str:
        return write_body(self.name, side, _legacy(side))

    def parse(self, side: Side, payload: str) -> str:
        return read_body(payload, side, _legacy(side))

    def to_columns(self, side: Side, payload: str, parsed: str) -> str:
        return read_columns(self.name, side, payload, parsed)


def avro_schema(side: Side) -> str:
    """The schema (JSON) of this side's records, as Flink derives it."""
    return _json(_Schema(_legacy(side)).record(side))


def _json(schema: Any) -> str:
    # The same text as Avro for Java prints. A registry that compares texts then finds the schema that Flink registered.
    return json.dumps(schema, separators=(",", ":"))


def problems(format_name: str, side: Side) -> list[str]:
    """The fields that Avro can't encode, for both Avro formats."""

    def refusal(data_type: DataType) -> str | None:
        if isinstance(data_type, MapType) and not isinstance(data_type.keyType, StringType):
            return "Avro maps have string keys; convert the keys to strings (transform_keys), or use an array of structs"
        if isinstance(data_type, StructType):
            names = [f.name for f in data_type.fields if not _NAME.fullmatch(f.name)]
            return f"{names[0]!r} is not an Avro name; use letters, digits and underscores" if names else None
        return None

    found = unsupported(format_name, side, refusal)
    for f in side.fields:
        if not _NAME.fullmatch(f.name):
            found.append(
                f"column {f.column!r} can't be written in the {side.role} as {format_name}: {f.name!r} is not an Avro name; "
                "use an alias of letters, digits and underscores"
            )
    records = [name for f in side.fields for name in _record_names(f.name, f.type)]
    for name in sorted({name for name in records if records.count(name) > 1}):
        found.append(
            f"two structs of the {side.role} would both be named '{RECORD_NAME}_{name}' in {format_name}; "
            "the name consists of the names of the column and the fields, rename one of them"
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


def _legacy(side: Side) -> bool:
    return bool(side.options.get("timestamp_mapping_legacy", True))


class _Schema:
    """Derives schemas with Flink's names and nesting, for one mapping of timestamps."""

    def __init__(self, legacy: bool, for_spark: bool = False) -> None:
        self.legacy, self.for_spark = legacy, for_spark
        # Spark writes a TIMESTAMP_NTZ only as a local timestamp. The bytes are the same: they don't contain the logical type.
        self.ntz = ("local-timestamp-millis" if for_spark else "timestamp-millis") if legacy else "local-timestamp-micros"

    def record(self, side: Side) -> dict[str, Any]:
        fields = [(f.name, f.type, f.nullable) for f in side.fields]
        docs: Mapping[str, str] = {} if self.for_spark else side.options.get("docs") or {}
        members = [
            {"name": f.name, "doc": docs[f.column], **member} if docs.get(f.column) else member
            for f, member in zip(side.fields, self._fields(RECORD_NAME, fields), strict=True)
        ]
        doc = {"doc": docs[""]} if docs.get("") else {}
        return {"type": "record", "name": RECORD_NAME, "namespace": NAMESPACE, **doc, "fields": members}

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
    """SQL expression that encodes the record. Returns NULL if a field that is not nullable is NULL."""
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
        f"Topic {side.topic}: column {field.column!r} has microseconds, but timestamp-millis stores milliseconds. "
        f"Truncate it in the SELECT (date_trunc){otherwise}: "
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
        # Time zone offsets are whole seconds, so that the session time zone does not change the fraction.
        lost = f"unix_micros(CAST({x} AS TIMESTAMP)) % 1000 != 0"
        return f"if({lost}, raise_error(concat({message}, CAST({x} AS STRING))), {x})"

    return checked(expression, field.type)


def read_body(payload: str, side: Side, legacy: bool, writer_schema: str | None = None) -> str:
    """SQL expression that decodes `payload` to an ARRAY with one record. It returns NULL or another size for other bytes.

    `from_avro` returns a record of NULLs for bytes that it can't decode, and ignores trailing bytes. Decoding the payload as the
    only element of an Avro array detects both.

    Args:
        writer_schema: the schema (JSON) of the payload, if it is not that of this side.
    """
    own = _Schema(legacy, for_spark=True).record(side)
    options = {"mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}
    if writer_schema is None:
        return _from_avro(f"concat(X'02', {payload}, X'00')", own, options)
    try:
        written, reader = reading.schemas(writer_schema, own)
    except reading.OtherValuesError:
        # NULL, as for any bytes that do not have the columns of this side.
        return _from_avro("CAST(NULL AS BINARY)", own, options)
    except ValueError as error:
        raise SchemaRegistryError(f"Topic '{side.topic}': a registered schema of the {side.role} {error}") from error
    options["avroSchema"] = _json({"type": "array", "items": reader})
    decoded = _from_avro(f"concat(X'02', {payload}, X'00')", written, options)
    if any(contains_type(f.type, DecimalType) for f in side.fields):
        # Decimals have the scale of their writer until here.
        columns = StructType([StructField(f.name, _in_avro(f.type)) for f in side.fields])
        return f"CAST({decoded} AS {type_text(ArrayType(columns))})"
    return decoded


def _from_avro(payload: str, schema: Any, options: Mapping[str, str]) -> str:
    return f"from_avro({payload}, {quote_literal(_json({'type': 'array', 'items': schema}))}, {quote_map(options)})"


def _in_avro(data_type: DataType) -> DataType:
    """The type as `from_avro` returns it. Avro has no TINYINT and SMALLINT."""
    if isinstance(data_type, ArrayType):
        return ArrayType(_in_avro(data_type.elementType))
    if isinstance(data_type, MapType):
        return MapType(data_type.keyType, _in_avro(data_type.valueType))
    if isinstance(data_type, StructType):
        return StructType([StructField(f.name, _in_avro(f.dataType)) for f in data_type.fields])
    return IntegerType() if isinstance(data_type, ByteType | ShortType) else data_type


def read_columns(format_name: str, side: Side, payload: str, records: str) -> str:
    """SQL expression that returns the STRUCT of columns. `records` is the name of the result of `read_body`."""
    columns = {f.column: _restored(f"{records}[0].{quote_identifier(f.name)}", f.type) for f in side.fields}
    return checked_struct(format_name, side, payload, columns, f"coalesce(size({records}), 0) = 1", is_text=False)


def _restored(expression: str, data_type: DataType) -> str:
    """The value in its Spark type. Avro has no TINYINT and SMALLINT."""
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
