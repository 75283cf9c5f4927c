"""Format `json-schema-confluent`: a zero byte, the id of a JSON Schema in four bytes, then a JSON object.

The object is the one of `json` with ISO-8601 timestamps, because JSON Schema's `date-time` demands them, and plain decimals, as
Confluent's serializer writes them. Readers need the schema only to validate: a view reads the records of all schemas. Leaves
subjects and ids to `registered`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
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

from dbt.adapters.upsert_kafka.formats import Side, unsupported
from dbt.adapters.upsert_kafka.formats.json import Json, refusal
from dbt.adapters.upsert_kafka.formats.registered import HEADER_BYTES, SCHEMA_ID, RegisteredFormat, header, prepared
from dbt.adapters.upsert_kafka.kafka_client.schema_references import resolved_json

DIALECT = "http://json-schema.org/draft-07/schema#"
# Kafka Connect reads the exact type from `connect.type`.
_TYPES: dict[type[DataType], list[dict[str, Any]]] = {
    BooleanType: [{"type": "boolean"}],
    ByteType: [{"type": "integer", "connect.type": "int8"}],
    ShortType: [{"type": "integer", "connect.type": "int16"}],
    IntegerType: [{"type": "integer", "connect.type": "int32"}],
    LongType: [{"type": "integer", "connect.type": "int64"}],
    # NaN and the infinities are strings, because JSON has no numbers for them.
    FloatType: [{"type": "number", "connect.type": "float32"}, {"enum": ["NaN", "Infinity", "-Infinity"]}],
    DoubleType: [{"type": "number", "connect.type": "float64"}, {"enum": ["NaN", "Infinity", "-Infinity"]}],
    DecimalType: [{"type": "number"}],
    StringType: [{"type": "string"}],
    BinaryType: [{"type": "string", "contentEncoding": "base64"}],
    DateType: [{"type": "string", "format": "date"}],
    TimestampType: [{"type": "string", "format": "date-time"}],
    # Without an offset it is not a date-time of JSON Schema.
    TimestampNTZType: [{"type": "string"}],
}
_NOT_IN_THE_SHAPE = ("$schema", "$id", "title", "description", "default", "connect.type", "definitions", "$defs")
_JSON = Json()


class JsonSchemaConfluent(RegisteredFormat):
    name = "json-schema-confluent"
    schema_type = "JSON"

    def problems(self, side: Side) -> list[str]:
        return unsupported(self.name, side, refusal) or self.problems_of_schema(side)

    def derived_schema(self, side: Side) -> str:
        docs: Mapping[str, str] = side.options.get("docs") or {}
        properties: dict[str, Any] = {}
        for f in side.fields:
            about = {"description": docs[f.column]} if docs.get(f.column) else {}
            default = {"default": None} if f.nullable and "docs" in side.options else {}
            properties[f.name] = {**about, **default, **_property(f.type, f.nullable)}
        schema: dict[str, Any] = {"$schema": DIALECT, "title": f"{side.topic}-{side.role}"}
        if docs.get(""):
            schema["description"] = docs[""]
        required = [f.name for f in side.fields if not f.nullable]
        schema |= {"type": "object", "properties": properties, "additionalProperties": False}
        return json.dumps(schema | ({"required": required} if required else {}), separators=(",", ":"), ensure_ascii=False)

    def record_name(self, schema: str) -> str:
        return str(json.loads(schema).get("title", ""))

    def same_shape(self, schema: str, other: str) -> bool:
        try:
            return bool(_shape(resolved_json(json.loads(schema), {})) == _shape(resolved_json(json.loads(other), {})))
        except ValueError:  # a `$ref` that leads nowhere, or into itself
            return False

    def encode(self, side: Side) -> str:
        return f"concat({header(prepared(side)[SCHEMA_ID])}, {_JSON.encode(_as_json(side))})"

    def parse(self, side: Side, payload: str) -> str:
        is_framed = f"substring({payload}, 1, 1) = X'00'"
        return f"CASE WHEN {is_framed} THEN {_JSON.parse(_as_json(side), f'substring({payload}, {HEADER_BYTES + 1})')} END"

    def to_columns(self, side: Side, payload: str, parsed: str) -> str:
        return _JSON.to_columns(_as_json(side), payload, parsed)


def _as_json(side: Side) -> Side:
    shape = {"timestamp_format_standard": "ISO-8601", "encode_decimal_as_plain_number": True}
    return replace(side, options={**side.options, **shape})


def _property(data_type: DataType, nullable: bool) -> dict[str, Any]:
    """The schema of a value; `oneOf` with null where it may be NULL, as Confluent's serializers declare it."""
    choices = [*([{"type": "null"}] if nullable else []), *_choices(data_type)]
    return {"oneOf": choices} if len(choices) > 1 else choices[0]


def _choices(data_type: DataType) -> list[dict[str, Any]]:
    if isinstance(data_type, ArrayType):
        return [{"type": "array", "items": _property(data_type.elementType, True)}]
    if isinstance(data_type, MapType):
        return [{"type": "object", "additionalProperties": _property(data_type.valueType, True)}]
    if isinstance(data_type, StructType):
        members = {f.name: _property(f.dataType, True) for f in data_type.fields}
        return [{"type": "object", "properties": members, "additionalProperties": False}]
    return _TYPES[type(data_type)]


def _shape(schema: Any) -> Any:
    """The schema without names, documentation and defaults, with sorted lists: `required` and `oneOf` have no order."""
    if isinstance(schema, list):
        return sorted((_shape(member) for member in schema), key=repr)
    if not isinstance(schema, dict):
        return schema
    return {
        name: {key: _shape(value) for key, value in part.items()} if name == "properties" else _shape(part)
        for name, part in schema.items()
        if name not in _NOT_IN_THE_SHAPE
    }
