"""Format `avro-confluent`: a zero byte, the schema's id in four bytes, then the record as `avro` writes it.

The schema is registered under `<topic>-key` and `<topic>-value`, or under `subject`, before a run encodes anything: `prepare`
does it, and gives the side the ids that `encode` and `decode` need. A view reads records of every version that the subject had
when the view was made. Timestamps follow the legacy mapping, as in Flink.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dbt.adapters.upsert_kafka.errors import SchemaRegistryError
from dbt.adapters.upsert_kafka.formats import ParsedFormat, Role, Side, avro
from dbt.adapters.upsert_kafka.schema_registry import RegistrySettings, connect

# Not options of a user: what `prepare` found out.
SCHEMA_ID, SCHEMAS = "schema_id", "schemas"
_UNREGISTERED = 0


class AvroConfluent(ParsedFormat):
    name = "avro-confluent"

    def problems(self, side: Side) -> list[str]:
        found = avro.problems(self.name, side, legacy=True)
        given = side.options.get("schema")
        if given and not found and not _same_shape(given, side):
            found.append(
                f"{side.role}_avro_confluent_schema does not describe the columns of the {side.role}: "
                f"leave it out, or make it this apart from names and documentation: {avro.avro_schema(side)}"
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
                f"The schema registry has no subject '{subject}' to read the {side.role} of topic '{side.topic}' with: "
                f"set {side.role}_avro_confluent_subject"
            )
        return replace(side, options={**side.options, SCHEMA_ID: _UNREGISTERED, SCHEMAS: known})

    def encode(self, side: Side) -> str:
        return f"concat({_header(_prepared(side)[SCHEMA_ID])}, {avro.write_body(self.name, side, legacy=True)})"

    def parse(self, side: Side, payload: str) -> str:
        options = _prepared(side)
        # Ours first: it is the one that nearly every record has.
        ids = sorted(options[SCHEMAS], key=lambda i: (i != options[SCHEMA_ID], i))
        cases = " ".join(
            f"WHEN {_header(i)} THEN "
            + avro.read_body(f"substring({payload}, 6)", side, True, None if i == options[SCHEMA_ID] else options[SCHEMAS][i])
            for i in ids
        )
        return f"CASE substring({payload}, 1, 5) {cases} END"

    def checked(self, side: Side, payload: str, parsed: str) -> str:
        return avro.read_columns(self.name, side, payload, parsed)


def subject_of(topic: str, role: Role, options: Mapping[str, Any]) -> str:
    """Where the registry has the schemas of one side."""
    return str(options.get("subject") or f"{topic}-{role}")


def latest_schema(topic: str, role: Role, options: Mapping[str, Any], registry: Mapping[str, Any]) -> str | None:
    """The newest schema of one side, if there is one."""
    known = connect(RegistrySettings.of(registry, options)).schemas(subject_of(topic, role, options))
    return list(known.values())[-1] if known else None


def _prepared(side: Side) -> Mapping[str, Any]:
    if SCHEMA_ID not in side.options:
        raise SchemaRegistryError(
            f"The {side.role} of topic '{side.topic}' has no schema id yet: prepare() comes before encode and decode"
        )
    return side.options


def _header(schema_id: int) -> str:
    return f"X'00{schema_id:08X}'"


def _same_shape(schema: str, side: Side) -> bool:
    try:
        return bool(_shape(json.loads(schema)) == _shape(json.loads(avro.avro_schema(side))))
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def _shape(schema: Any) -> Any:
    """What decides the bytes, and the fields' names."""
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
