"""A schema of the user's own that refers to schemas of other subjects."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import SchemaRegistryError
from tests.functional.test_registry import AVRO, JSON, RegistryTable, both_formats

# The same type twice, of a type that refers to another one.
SELECT = """
SELECT {id} AS id, named_struct('city', '{city}', 'country', named_struct('code', 'AT')) AS home,
  named_struct('city', 'Graz', 'country', named_struct('code', 'AT')) AS work
"""
COUNTRY = {
    AVRO: {"type": "record", "namespace": "geo", "name": "Country", "fields": [
        {"name": "code", "type": ["null", "string"], "default": None}]},
    JSON: {"type": "object", "additionalProperties": False, "properties": {
        "code": {"oneOf": [{"type": "null"}, {"type": "string"}]}}},
}  # fmt: skip
ADDRESS = {
    AVRO: {"type": "record", "namespace": "geo", "name": "Address", "fields": [
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "country", "type": ["null", "Country"], "default": None}]},
    JSON: {"type": "object", "additionalProperties": False, "properties": {
        "city": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "country": {"oneOf": [{"type": "null"}, {"$ref": "country.json"}]}}},
}  # fmt: skip
USER = {
    AVRO: {"type": "record", "namespace": "shop", "name": "User", "fields": [
        {"name": "id", "type": "int"},
        {"name": "home", "type": ["null", "geo.Address"], "default": None},
        {"name": "work", "type": ["null", "geo.Address"], "default": None}]},
    JSON: {"title": "User", "type": "object", "required": ["id"], "additionalProperties": False, "properties": {
        "id": {"type": "integer"},
        "home": {"oneOf": [{"type": "null"}, {"$ref": "address.json"}]},
        "work": {"oneOf": [{"type": "null"}, {"$ref": "address.json"}]}}},
}  # fmt: skip
NAMES = {AVRO: ("geo.Country", "geo.Address"), JSON: ("country.json", "address.json")}


class Referring(RegistryTable):
    """A model whose value has USER as its schema."""

    def register(self, format_name: str) -> None:
        country, address = NAMES[format_name]
        self._register(f"{self.topic}-country", COUNTRY[format_name])
        self._register(f"{self.topic}-address", ADDRESS[format_name], [self._reference(country, "country")])
        self.options |= self.option("schema", json.dumps(USER[format_name]), "value")
        self.options |= self.option("schema_references", [self._reference(address, "address")], "value")

    def _reference(self, name: str, subject: str) -> dict[str, Any]:
        return {"name": name, "subject": f"{self.topic}-{subject}", "version": 1}

    def _register(self, subject: str, schema: Any, references: list[dict[str, Any]] | None = None) -> None:
        body: dict[str, Any] = {"schema": json.dumps(schema), "references": references or []}
        body |= {"schemaType": "JSON"} if self.prefix.startswith("json") else {}
        answer = requests.post(f"{self.registry}/subjects/{subject}/versions", json=body, timeout=30)
        assert answer.ok, answer.text

    def deserialized(self, payload: bytes | None) -> Any:
        client = SchemaRegistryClient({"url": self.registry})
        reader = (
            AvroDeserializer(client) if self.prefix.startswith("avro") else JSONDeserializer(None, schema_registry_client=client)
        )
        return reader(payload, SerializationContext(self.topic, MessageField.VALUE))


@pytest.fixture
def make(spark: SparkSession, broker: str, topic_name: str, schema_name: str, registry: str) -> Any:
    return lambda format_name: Referring(spark, broker, topic_name, schema_name, registry, format_name)


@both_formats
def test_schema_with_references_is_registered_and_read(make: Any, format_name: str) -> None:
    model: Referring = make(format_name)
    model.register(format_name)
    model.publish(SELECT.format(id=1, city="Wien"))
    registered = model.get(f"/subjects/{model.topic}-value/versions/latest")
    assert [reference["name"] for reference in registered["references"]] == [NAMES[format_name][1]]
    assert json.loads(registered["schema"])["properties" if format_name == JSON else "fields"]
    [record] = model.records()
    address = {"city": "Graz", "country": {"code": "AT"}}
    assert model.deserialized(record.value) == {"id": 1, "home": {**address, "city": "Wien"}, "work": address}
    assert model.publish(SELECT.format(id=1, city="Wien")).unchanged == 1

    # Another version of the subject, and records of both: readers need the referenced schemas too.
    model.put_level("NONE")
    for name in ("schema", "schema_references"):
        del model.options[f"value_{model.prefix}_{name}"]
    model.publish(SELECT.format(id=2, city="Linz"), missing_keys="keep")
    assert model.versions() == [1, 2]
    rows = model.spark.sql(f"SELECT id, home.city, work.country.code FROM `{model.schema}`.users ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, "Wien", "AT"), (2, "Linz", "AT")]


@both_formats
def test_reference_that_does_not_fit_is_refused_before_anything_is_written(make: Any, format_name: str) -> None:
    model: Referring = make(format_name)
    model.register(format_name)
    missing = model.option("schema_references", [{"name": "x", "subject": f"{model.topic}-nobody", "version": 3}], "value")
    with pytest.raises(
        SchemaRegistryError, match=r"refers to version 3 of subject '.*-nobody', which the registry does not have"
    ):
        model.publish(SELECT.format(id=1, city="Wien"), **missing)
    other = model.option("schema_references", [{"name": "x", "subject": f"{model.topic}-address", "version": 1}], "value")
    with pytest.raises(SchemaRegistryError, match=rf"refers to '{NAMES[format_name][1]}', which is not in its references"):
        model.publish(SELECT.format(id=1, city="Wien"), **other)
    with pytest.raises(SchemaRegistryError, match=r"schema does not describe the columns of the value") as refused:
        model.publish("SELECT 1 AS id, named_struct('city', 5) AS home, named_struct('city', 6) AS work")
    assert "\n" not in refused.value.msg
    assert model.end() == {} and model.versions() == model.versions(f"{model.topic}-key") == []
