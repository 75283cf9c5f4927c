"""What the formats of a schema registry share: subjects, schema ids, and the five bytes before each payload.

`prepare` finds or registers the schema of a side before anything is written. Leaves requests to `kafka_client.schema_registry`
and what a schema contains to `avro_confluent` and `json_schema_confluent`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from dbt.adapters.upsert_kafka.errors import IncompatibleSchemaError, SchemaRegistryError
from dbt.adapters.upsert_kafka.formats import ParsedFormat, Role, Side
from dbt.adapters.upsert_kafka.kafka_client.schema_registry import Reference, RegistrySettings, Schema, SchemaRegistry, connect

# Set by `prepare`, not by users.
SCHEMA_ID, SCHEMAS, REFUSAL = "schema_id", "schemas", "refusal"
UNREGISTERED = 0
HEADER_BYTES = 5
BY_TOPIC, BY_RECORD, BY_TOPIC_AND_RECORD = "TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"


class RegisteredFormat(ParsedFormat):
    """A format whose payloads begin with a zero byte and the id of their schema in four bytes."""

    schema_type: ClassVar[str]
    """The registry's name of the kind of schema."""

    @abstractmethod
    def derived_schema(self, side: Side) -> str:
        """The schema (JSON) of the side's columns."""

    @abstractmethod
    def record_name(self, schema: str) -> str:
        """The name that a schema has for other systems; empty if it has none."""

    @abstractmethod
    def same_shape(self, schema: str, other: str) -> bool:
        """Whether both schemas describe the same columns and types. Names of records and documentation may differ."""

    def problems_of_schema(self, side: Side) -> list[str]:
        """The problems of the options that concern the schema, one sentence each."""
        given, family = side.options.get("schema"), self.name.replace("-", "_")
        # A schema with references is compared in `prepare`, when the schemas that it refers to are known.
        if given and not side.options.get("schema_references") and not self.same_shape(given, self.derived_schema(side)):
            return [self._other_columns(side)]
        strategy = side.options.get("subject_name_strategy", BY_TOPIC)
        if strategy != BY_TOPIC and not side.options.get("subject") and not (given and self.record_name(given)):
            problem = (
                f"{family}_subject_name_strategy={strategy} names the subject of the {side.role} after its record, and derived "
                f"schemas have no name of their own: set {side.role}_{family}_schema, with a name"
            )
            return [problem]
        return []

    def _other_columns(self, side: Side) -> str:
        return (
            f"{side.role}_{self.name.replace('-', '_')}_schema does not describe the columns of the {side.role}. Remove it, or "
            f"use this schema, in which you may change the names of records and the documentation: {self.derived_schema(side)}"
        )

    def check(self, side: Side, registry: Mapping[str, Any]) -> None:
        client, subject, schema, _ = self._found(side, registry)
        self._schema_id(client, subject, schema, side, writes=False)

    def prepare(self, side: Side, registry: Mapping[str, Any], writes: bool) -> Side:
        client, subject, schema, whole = self._found(side, registry)
        refusal = ""
        try:
            schema_id = self._schema_id(client, subject, schema, side, writes)
        except IncompatibleSchemaError as error:
            if writes:
                raise
            schema_id, refusal = UNREGISTERED, str(error.msg)
        known = {**client.schemas(subject), schema_id: whole}
        return replace(side, options={**side.options, SCHEMA_ID: schema_id, SCHEMAS: known, REFUSAL: refusal})

    def _found(self, side: Side, registry: Mapping[str, Any]) -> tuple[SchemaRegistry, str, Schema, str]:
        """The registry, the subject, the schema of the columns, and its text with what it refers to."""
        client = connect(RegistrySettings.of(registry, side.options))
        subject = subject_of(side.topic, side.role, side.options, self.record_name)
        references = tuple(Reference(**reference) for reference in side.options.get("schema_references") or ())
        schema = Schema(side.options.get("schema") or self.derived_schema(side), self.schema_type, references)
        whole = client.whole(subject, schema)
        if references and not self.same_shape(whole, self.derived_schema(side)):
            raise SchemaRegistryError(f"Topic '{side.topic}': {self._other_columns(side)}. Nothing was written")
        return client, subject, schema, whole

    def _schema_id(self, client: SchemaRegistry, subject: str, schema: Schema, side: Side, writes: bool) -> int:
        if side.options.get("use_latest_version"):
            return self._latest_id(client, subject, schema, side)
        if not side.options.get("auto_register", True):
            found = client.find(subject, schema)
            if found is None:
                raise IncompatibleSchemaError(
                    f"Schema registry {client.settings.urls[0]}: subject '{subject}' does not have the schema of these columns, "
                    f"and auto_register is false. Nothing was written. Register this schema: {schema.text}"
                )
            return found
        if writes:
            return client.register(subject, schema, side.options.get("compatibility"))
        found = client.find(subject, schema)
        if found is None:
            client.check(subject, schema)
        return UNREGISTERED if found is None else found

    def _latest_id(self, client: SchemaRegistry, subject: str, schema: Schema, side: Side) -> int:
        known = client.versions(subject)
        where = f"Schema registry {client.settings.urls[0]}: subject '{subject}'"
        if not known:
            raise SchemaRegistryError(
                f"{where} has no version, and use_latest_version is true. Nothing was written. "
                f"Register this schema: {schema.text}"
            )
        latest, registered = list(known.items())[-1]
        if not self.same_shape(client.whole(subject, registered), self.derived_schema(side)):
            raise SchemaRegistryError(
                f"{where}: its latest version does not describe the columns of this model, and use_latest_version is true. "
                f"Nothing was written. Change the columns, or register this schema: {schema.text}"
            )
        return latest


def subject_of(topic: str, role: Role, options: Mapping[str, Any], record_name: Any = None) -> str:
    """The subject of one side's schemas.

    Args:
        record_name: returns the name of a schema, for the strategies that need it.
    """
    strategy = options.get("subject_name_strategy", BY_TOPIC)
    if options.get("subject"):
        return str(options["subject"])
    if strategy == BY_TOPIC or record_name is None or not options.get("schema"):
        return f"{topic}-{role}"
    name = record_name(options["schema"])
    return str(name) if strategy == BY_RECORD else f"{topic}-{name}"


def prepared(side: Side) -> Mapping[str, Any]:
    """The options of a side that `prepare` has returned."""
    if SCHEMA_ID not in side.options:
        raise SchemaRegistryError(
            f"The {side.role} of topic '{side.topic}' has no schema id; call prepare() before encode() and decode()"
        )
    return side.options


def header(schema_id: int) -> str:
    """SQL literal of the five bytes before a payload."""
    return f"X'00{schema_id:08X}'"
