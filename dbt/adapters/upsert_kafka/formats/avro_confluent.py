"""Format `avro-confluent`: a zero byte, the schema id in four bytes, then the record as `avro` encodes it.

`registered` finds and registers the schemas. A view reads the records of every version that the subject had when the view was
created. TIMESTAMP_NTZ has the legacy mapping of `avro`, as in Flink.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastavro.schema import SchemaParseException, expand_schema

from dbt.adapters.upsert_kafka.errors import SchemaRegistryError
from dbt.adapters.upsert_kafka.formats import Role, Side, avro
from dbt.adapters.upsert_kafka.formats.registered import (
    HEADER_BYTES,
    SCHEMA_ID,
    SCHEMAS,
    UNREGISTERED,
    RegisteredFormat,
    header,
    prepared,
    subject_of,
)
from dbt.adapters.upsert_kafka.kafka_client.schema_registry import RegistrySettings, connect


class AvroConfluent(RegisteredFormat):
    name = "avro-confluent"
    schema_type = "AVRO"

    def problems(self, side: Side) -> list[str]:
        return avro.problems(self.name, side) or self.problems_of_schema(side)

    def derived_schema(self, side: Side) -> str:
        return avro.avro_schema(side)

    def record_name(self, schema: str) -> str:
        record = json.loads(schema)
        # A primitive type is a text.
        return ".".join(filter(None, [record.get("namespace"), record.get("name")])) if isinstance(record, dict) else ""

    def same_shape(self, schema: str, other: str) -> bool:
        return bool(_shape(_expanded(schema)) == _shape(_expanded(other)))

    def prepare_to_read(self, side: Side, registry: Mapping[str, Any]) -> Side:
        subject = subject_of(side.topic, side.role, side.options)
        known = connect(RegistrySettings.of(registry, side.options)).schemas(subject)
        if not known:
            raise SchemaRegistryError(
                f"The schema registry has no subject '{subject}' to read the {side.role} of topic '{side.topic}'; "
                f"set {side.role}_avro_confluent_subject"
            )
        return replace(side, options={**side.options, SCHEMA_ID: UNREGISTERED, SCHEMAS: known})

    def encode(self, side: Side) -> str:
        return f"concat({header(prepared(side)[SCHEMA_ID])}, {avro.write_body(self.name, side, legacy=True)})"

    def parse(self, side: Side, payload: str) -> str:
        options = prepared(side)
        # This side's own schema first, because most records have it.
        ids = sorted(options[SCHEMAS], key=lambda i: (i != options[SCHEMA_ID], i))
        body = f"substring({payload}, {HEADER_BYTES + 1})"
        cases = " ".join(
            f"WHEN {header(i)} THEN " + avro.read_body(body, side, True, None if i == options[SCHEMA_ID] else options[SCHEMAS][i])
            for i in ids
        )
        return f"CASE substring({payload}, 1, {HEADER_BYTES}) {cases} END"

    def to_columns(self, side: Side, payload: str, parsed: str) -> str:
        return avro.read_columns(self.name, side, payload, parsed)


def latest_schema(topic: str, role: Role, options: Mapping[str, Any], registry: Mapping[str, Any]) -> str | None:
    """The newest schema (JSON) of one side, or None if the subject does not exist."""
    known = connect(RegistrySettings.of(registry, options)).schemas(subject_of(topic, role, options))
    return list(known.values())[-1] if known else None


def _expanded(schema: str) -> Any:
    """The schema with the definition of a type wherever a schema has its name."""
    try:
        return expand_schema(json.loads(schema))
    except (SchemaParseException, RecursionError):  # contains itself, or is not accepted by Avro: no table has such columns
        return None


def _shape(schema: Any) -> Any:
    """The parts of a schema that decide the bytes, and the names of the fields."""
    if isinstance(schema, list):
        return [_shape(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if schema["type"] == "record":
        return ["record", [(f["name"], _shape(f["type"])) for f in schema["fields"]]]
    if schema["type"] == "array":
        return ["array", _shape(schema["items"])]
    if schema["type"] == "map":
        return ["map", _shape(schema["values"])]
    logical = tuple(schema.get(part) for part in ("logicalType", "precision", "scale"))
    return [schema["type"], *logical] if any(logical) else schema["type"]
