"""Format `avro-confluent`: a zero byte, the schema id in four bytes, then the record as `avro` encodes it.

`prepare` registers the schema under the subject `<topic>-key`, `<topic>-value` or the option `subject`, and adds the schema ids
to the side for `encode` and `decode`. A view reads the records of every version that the subject had when the view was created.
Timestamps use the legacy mapping of `avro`, as in Flink. Leaves requests to the registry to `kafka_client.schema_registry`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dbt.adapters.upsert_kafka.errors import SchemaRegistryError
from dbt.adapters.upsert_kafka.formats import ParsedFormat, Role, Side, avro
from dbt.adapters.upsert_kafka.kafka_client.schema_registry import RegistrySettings, connect

# Set by `prepare`, not by users.
SCHEMA_ID, SCHEMAS = "schema_id", "schemas"
_UNREGISTERED = 0


class AvroConfluent(ParsedFormat):
    name = "avro-confluent"

    def problems(self, side: Side) -> list[str]:
        found = avro.problems(self.name, side)
        given = side.options.get("schema")
        if given and not found and not _same_shape(given, side):
            found.append(
                f"{side.role}_avro_confluent_schema does not describe the columns of the {side.role}. Remove it, or use this "
                f"schema, in which you may change the names of records and the documentation: {avro.avro_schema(side)}"
            )
        return found

    def prepare(self, side: Side, registry: Mapping[str, Any], writes: bool) -> Side:
        client = connect(RegistrySettings.of(registry, side.options))
        subject = subject_of(side.topic, side.role, side.options)
        schema = side.options.get("schema") or avro.avro_schema(side)
        schema_id = client.register(subject, schema) if writes else client.find(subject, schema)
        if schema_id is None:
            client.check(subject, schema)
            schema_id = _UNREGISTERED
        known = {**client.schemas(subject), schema_id: schema}
        return replace(side, options={**side.options, SCHEMA_ID: schema_id, SCHEMAS: known})

    def prepare_to_read(self, side: Side, registry: Mapping[str, Any]) -> Side:
        subject = subject_of(side.topic, side.role, side.options)
        known = connect(RegistrySettings.of(registry, side.options)).schemas(subject)
        if not known:
            raise SchemaRegistryError(
                f"The schema registry has no subject '{subject}' to read the {side.role} of topic '{side.topic}'; "
                f"set {side.role}_avro_confluent_subject"
            )
        return replace(side, options={**side.options, SCHEMA_ID: _UNREGISTERED, SCHEMAS: known})

    def encode(self, side: Side) -> str:
        return f"concat({_header(_prepared(side)[SCHEMA_ID])}, {avro.write_body(self.name, side, legacy=True)})"

    def parse(self, side: Side, payload: str) -> str:
        options = _prepared(side)
        # This side's own schema first, because most records have it.
        ids = sorted(options[SCHEMAS], key=lambda i: (i != options[SCHEMA_ID], i))
        cases = " ".join(
            f"WHEN {_header(i)} THEN "
            + avro.read_body(f"substring({payload}, 6)", side, True, None if i == options[SCHEMA_ID] else options[SCHEMAS][i])
            for i in ids
        )
        return f"CASE substring({payload}, 1, 5) {cases} END"

    def to_columns(self, side: Side, payload: str, parsed: str) -> str:
        return avro.read_columns(self.name, side, payload, parsed)


def subject_of(topic: str, role: Role, options: Mapping[str, Any]) -> str:
    """The subject of one side's schemas."""
    return str(options.get("subject") or f"{topic}-{role}")


def latest_schema(topic: str, role: Role, options: Mapping[str, Any], registry: Mapping[str, Any]) -> str | None:
    """The newest schema (JSON) of one side, or None if the subject does not exist."""
    known = connect(RegistrySettings.of(registry, options)).schemas(subject_of(topic, role, options))
    return list(known.values())[-1] if known else None


def _prepared(side: Side) -> Mapping[str, Any]:
    if SCHEMA_ID not in side.options:
        raise SchemaRegistryError(
            f"The {side.role} of topic '{side.topic}' has no schema id; call prepare() before encode() and decode()"
        )
    return side.options


def _header(schema_id: int) -> str:
    return f"X'00{schema_id:08X}'"


def _same_shape(schema: str, side: Side) -> bool:
    """Whether records of both schemas have the same bytes and field names. `options` has checked that `schema` is valid."""
    return bool(_shape(json.loads(schema)) == _shape(json.loads(avro.avro_schema(side))))


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
