"""Formats with a schema registry: what Confluent's deserializer reads, whose schema is registered, and how schemas evolve."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import requests
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError, SchemaRegistryError
from dbt.adapters.upsert_kafka.publish.preview import Preview
from tests.counts import counts
from tests.dbt_project import Project
from tests.tables import Table

AVRO, JSON = "avro-confluent", "json-schema-confluent"
both_formats = pytest.mark.parametrize("format_name", [AVRO, JSON])
LEVELS = ["NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"]
CHANGES = {
    "added": "SELECT 1 AS id, 'ann' AS name, 7 AS age, true AS vip",
    "dropped": "SELECT 1 AS id, 'ann' AS name",
    "renamed": "SELECT 1 AS id, 'ann' AS name, 7 AS years",
    "widened": "SELECT 1 AS id, 'ann' AS name, CAST(7 AS BIGINT) AS age",
}
EVERY, BACKWARD = set(LEVELS), {"NONE", "BACKWARD", "BACKWARD_TRANSITIVE"}
FORWARD = {"NONE", "FORWARD", "FORWARD_TRANSITIVE"}
# The levels under which each change is published. Columns of Avro are nullable with a default. For JSON Schema, registries
# differ: these are the levels of Apicurio 3.0.9.
PUBLISHED: dict[str, dict[str, set[str]]] = {
    AVRO: {"added": EVERY, "dropped": EVERY, "renamed": EVERY, "widened": BACKWARD},
    JSON: {"added": BACKWARD, "dropped": FORWARD, "renamed": {"NONE"}, "widened": EVERY},
}
EVERY_TYPE = """
SELECT 1 AS id, CAST(2 AS TINYINT) AS t, CAST(3 AS SMALLINT) AS s, CAST(4 AS BIGINT) AS l, CAST('NaN' AS DOUBLE) AS d,
  CAST(1.5 AS FLOAT) AS f, CAST(12.50 AS DECIMAL(10, 2)) AS n, true AS b, 'ann 😀' AS name, X'00FF' AS bin,
  DATE '2024-02-29' AS day, TIMESTAMP '2024-02-29 12:34:56.5Z' AS at,
  TIMESTAMP_NTZ '2024-02-29 12:34:56' AS local, array(1, NULL) AS list,
  map('k', 1) AS entries, named_struct('a', array(named_struct('b', 5))) AS nested, CAST(NULL AS STRING) AS nothing
"""


class RegistryTable(Table):
    """A model in one of the formats with a registry."""

    def __init__(self, spark: SparkSession, broker: str, topic: str, schema: str, registry: str, format_name: str = AVRO) -> None:
        super().__init__(spark, broker, topic, schema)
        self.registry, self.prefix = registry, format_name.replace("-", "_")
        self.options |= {"format": format_name, f"{self.prefix}_url": registry}

    def option(self, name: str, value: Any, role: str = "") -> dict[str, Any]:
        return {f"{role}_{self.prefix}_{name}".strip("_"): value}

    def get(self, path: str) -> Any:
        answer = requests.get(f"{self.registry}{path}", timeout=30)
        return answer.json() if answer.ok else None

    def versions(self, subject: str | None = None) -> list[int]:
        return self.get(f"/subjects/{subject or self.topic + '-value'}/versions") or []

    def schema_of(self, subject: str | None = None) -> dict[str, Any]:
        return dict(json.loads(self.get(f"/subjects/{subject or self.topic + '-value'}/versions/latest")["schema"]))

    def put_level(self, level: str, subject: str | None = None) -> None:
        answer = requests.put(
            f"{self.registry}/config/{subject or self.topic + '-value'}", json={"compatibility": level}, timeout=30
        )
        assert answer.ok, answer.text

    def post(self, subject: str, schema: str) -> None:
        body = {"schema": schema} | ({"schemaType": "JSON"} if self.prefix.startswith("json") else {})
        answer = requests.post(f"{self.registry}/subjects/{subject}/versions", json=body, timeout=30)
        assert answer.ok, answer.text


@pytest.fixture
def make(spark: SparkSession, broker: str, topic_name: str, schema_name: str, registry: str) -> Any:
    def table(format_name: str, suffix: str = "") -> RegistryTable:
        return RegistryTable(spark, broker, topic_name + suffix, schema_name, registry, format_name)

    return table


def confluent_json(model: RegistryTable, payload: bytes | None, field: MessageField) -> Any:
    """The object as Confluent's deserializer returns it, which validates it against the schema in the registry."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    deserializer = JSONDeserializer(None, schema_registry_client=SchemaRegistryClient({"url": model.registry}))
    return deserializer(payload, SerializationContext(model.topic, field))


def test_confluent_deserializer_reads_every_type_of_key_and_value(make: Any, spark: SparkSession) -> None:
    model = make(JSON)
    model.publish(EVERY_TYPE)
    [record] = model.records()
    assert confluent_json(model, record.key, MessageField.KEY) == {"id": 1}
    assert confluent_json(model, record.value, MessageField.VALUE) == {
        "id": 1,
        "t": 2,
        "s": 3,
        "l": 4,
        "d": "NaN",
        "f": 1.5,
        "n": 12.5,
        "b": True,
        "name": "ann 😀",
        "bin": "AP8=",
        "day": "2024-02-29",
        "at": "2024-02-29T12:34:56.5Z",
        "local": "2024-02-29T12:34:56",
        "list": [1, None],
        "entries": {"k": 1},
        "nested": {"a": [{"b": 5}]},
        "nothing": None,
    }
    view = spark.table(f"`{model.schema}`.users").collect()
    assert [str(row) for row in view] == [str(row) for row in spark.sql(EVERY_TYPE).collect()]
    assert model.publish(EVERY_TYPE).unchanged == 1


# Names and values that a JSON Schema, or a SQL expression, could take for something else.
HOSTILE = r"""
SELECT 1 AS id, 10.00BD AS n0, CAST(repeat('9', 38) AS DECIMAL(38, 0)) AS n1, CAST(1E-18 AS DECIMAL(38, 18)) AS n2,
  TIMESTAMP '0001-01-01 00:00:00Z' AS t0, TIMESTAMP '9999-12-31 23:59:59.999999Z' AS t1, DATE '0001-01-01' AS d0,
  array(CAST('NaN' AS DOUBLE), NULL, CAST('-Infinity' AS DOUBLE)) AS fs, 9223372036854775807 AS l,
  'b' AS `a.b`, 'c' AS `quo"te`, 'd' AS `back\slash`, 'e' AS `ümläut 😀`, 'f' AS `properties`, 'g' AS `$schema`, 'h' AS `$ref`,
  'i' AS `$id`, 'j' AS `oneOf`, 'k' AS `default`, 'l' AS `definitions`, 'm' AS `a/b~c`, 'n' AS `%20`, 'o' AS `it's`,
  named_struct('a b', CAST(NULL AS DECIMAL(10, 2)), 'in"ner',
    array(named_struct('x', TIMESTAMP '2024-01-01 00:00:00Z', 'y', map('k"1', 1.50BD, 'k.2', NULL)))) AS nested,
  CAST(NULL AS STRUCT<a: ARRAY<STRUCT<b: MAP<STRING, DECIMAL(4, 2)>>>>) AS nothing,
  CAST(array() AS ARRAY<STRING>) AS empty, array(array(1, NULL), NULL) AS arrays, 'line\nbreak \u0000 \t "q" \\' AS text
"""


def test_confluent_deserializer_reads_hostile_names_and_values(make: Any, spark: SparkSession) -> None:
    model = make(JSON)
    model.publish(HOSTILE)
    [record] = model.records()
    found = confluent_json(model, record.value, MessageField.VALUE)
    assert list(found) == spark.sql(HOSTILE).columns
    assert (found["n0"], found["n1"], found["n2"]) == (10, 10**38 - 1, 1e-18) and b'"n0":10.00,' in record.value
    assert (found["t0"], found["t1"], found["d0"]) == ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "0001-01-01")
    assert found["nested"] == {"a b": None, 'in"ner': [{"x": "2024-01-01T00:00:00Z", "y": {'k"1': 1.5, "k.2": None}}]}
    assert (found["fs"], found["nothing"], found["empty"]) == (["NaN", None, "-Infinity"], None, [])
    assert found["text"] == 'line\nbreak \0 \t "q" \\'
    # Python has no date before the year 1 in other time zones, so that Spark compares.
    view = f"SELECT to_json(struct(*)) FROM `{model.schema}`.users"
    assert spark.sql(view).collect() == spark.sql(f"SELECT to_json(struct(*)) FROM ({HOSTILE})").collect()
    assert model.publish(HOSTILE).unchanged == 1


def test_json_rows_are_updated_and_deleted_and_new_columns_are_a_version(make: Any) -> None:
    model = make(JSON)
    model.publish([(1, "ann"), (2, "bob")])
    assert counts(model.publish([(1, "ann"), (3, "cyd")])) == (1, 0, 1, 1)
    assert model.view() == [(1, "ann"), (3, "cyd")]
    model.put_level("NONE")
    model.publish([(1, "ann", 5)], "id int, name string, age int", missing_keys="keep")
    assert model.versions() == [1, 2]
    assert model.view() == [(1, "ann", 5), (3, "cyd", None)]


@both_formats
def test_unregistered_schema_is_refused_without_auto_register(make: Any, format_name: str) -> None:
    model = make(format_name)
    unregistered = model.option("auto_register", False)
    with pytest.raises(SchemaRegistryError, match=r"auto_register is false\. Nothing was written\. Register this") as refused:
        model.publish([(1, "ann")], **unregistered)
    assert model.end() == {} and model.versions() == model.versions(f"{model.topic}-key") == []
    assert "\n" not in refused.value.msg

    model.publish([(1, "ann")])
    assert model.publish([(1, "bob")], **unregistered).updated == 1
    before = model.end()
    with pytest.raises(SchemaRegistryError, match="auto_register is false"):
        model.publish([(1, 5)], "id int, name int", **unregistered)
    assert model.end() == before and model.versions() == [1]


@both_formats
def test_latest_version_is_used_if_it_describes_the_columns(make: Any, format_name: str) -> None:
    model = make(format_name)
    latest = model.option("use_latest_version", True, "value")
    with pytest.raises(SchemaRegistryError, match="has no version, and use_latest_version is true"):
        model.publish([(1, "ann")], **latest)
    assert model.end() == {}

    model.publish([(1, "ann")], mode="preview")
    given = {"avro": AVRO_USER, "json": JSON_USER}[format_name[:4]]
    model.post(f"{model.topic}-value", json.dumps(given))
    model.publish([(1, "ann")], **latest)
    assert model.versions() == [1]
    registered = model.get(f"/subjects/{model.topic}-value/versions/1")["id"]
    assert {int.from_bytes((r.value or b"")[1:5], "big") for r in model.records()} == {registered}
    assert model.view() == [(1, "ann")]

    before = model.end()
    with pytest.raises(SchemaRegistryError, match="latest version does not describe the columns"):
        model.publish([(1, 5)], "id int, name int", **latest)
    assert model.end() == before and model.versions() == [1]


AVRO_USER = {
    "type": "record",
    "name": "User",
    "namespace": "shop",
    "doc": "Registered by somebody else",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"], "default": None}],
}
JSON_USER = {
    "title": "User",
    "type": "object",
    "properties": {
        "name": {"description": "Who", "oneOf": [{"type": "string"}, {"type": "null"}]},
        "id": {"type": "integer"},
    },
    "required": ["id"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("format_name", "strategy", "subject"),
    [(AVRO, "RecordNameStrategy", "shop.User"), (JSON, "TopicRecordNameStrategy", "{topic}-User")],
)
def test_subject_is_named_after_the_record(make: Any, format_name: str, strategy: str, subject: str) -> None:
    model = make(format_name)
    by_record = model.option("subject_name_strategy", strategy, "value")
    with pytest.raises(OptionsError, match=rf"subject_name_strategy={strategy}.*set value_{model.prefix}_schema, with a name"):
        model.publish([(1, "ann")], **by_record)
    own = json.dumps(AVRO_USER if format_name == AVRO else JSON_USER)
    model.publish([(1, "ann")], **by_record, **model.option("schema", own, "value"))
    assert model.versions(subject.format(topic=model.topic)) == [1] and model.versions() == []
    assert model.view() == [(1, "ann")]


@both_formats
def test_new_subject_gets_its_level_and_an_existing_one_keeps_it(make: Any, format_name: str) -> None:
    model = make(format_name)
    model.publish([(1, "ann")], **model.option("compatibility", "FULL"))
    assert model.get(f"/config/{model.topic}-value")["compatibilityLevel"] == "FULL"
    model.put_level("NONE")
    model.publish([(1, 5)], "id int, name int", **model.option("compatibility", "FULL"))
    assert model.get(f"/config/{model.topic}-value")["compatibilityLevel"] == "NONE" and model.versions() == [1, 2]


@both_formats
@pytest.mark.parametrize(
    "level", [pytest.param(level, marks=[] if level == "FORWARD" else pytest.mark.nightly) for level in LEVELS]
)
def test_evolved_columns_are_published_or_refused_with_topic_and_subject_untouched(
    make: Any, format_name: str, level: str
) -> None:
    outcomes = {}
    for change, select in CHANGES.items():
        model = make(format_name, f"-{change}")
        model.publish("SELECT 1 AS id, 'ann' AS name, 7 AS age", **model.option("compatibility", level))
        before = model.end()
        try:
            assert model.publish(select).records == 1
        except SchemaRegistryError as error:
            assert f"subject '{model.topic}-value' refuses the schema of these columns as incompatible" in error.msg
            assert "\n" not in error.msg and "Exception" not in error.msg
            assert model.end() == before and model.versions() == model.versions(f"{model.topic}-key") == [1]
            previews: list[Preview] = []
            model.publish(select, mode="preview", report=previews.append)
            [refusal] = previews[0].refusals
            assert f"subject '{model.topic}-value' refuses the schema of these columns as incompatible" in refusal
            assert "\n" not in refusal
            assert previews[0].counts["update"] == previews[0].messages == 1
            assert model.versions() == [1]
            outcomes[change] = "refused"
        else:
            assert model.versions() == [1, 2]
            assert [tuple(row) for row in model.spark.sql(select).collect()] == model.view()
            outcomes[change] = "published"
    published = PUBLISHED[format_name]
    assert outcomes == {change: "published" if level in published[change] else "refused" for change in CHANGES}


def test_schema_is_compared_with_all_versions_if_the_level_is_transitive(make: Any) -> None:
    model = make(AVRO)
    transitive = model.option("compatibility", "BACKWARD_TRANSITIVE")
    model.publish([(1, "ann", 7)], "id int, name string, age int", **transitive)
    model.publish([(1, "ann")], **transitive)
    before = model.end()
    # The last version has no age.
    for mode, error in (("preview", GuardError), ("publish", SchemaRegistryError)):
        with pytest.raises(error, match="refuses the schema of these columns as incompatible"):
            model.publish([(1, "ann", "7")], "id int, name string, age string", mode=mode)
    assert model.end() == before and model.versions() == [1, 2]


def test_refused_value_registers_no_key(make: Any) -> None:
    model = make(AVRO)
    model.publish([(1, "ann")], **model.option("compatibility", "BACKWARD", "value"))
    model.put_level("NONE", f"{model.topic}-key")
    before = model.end()
    with pytest.raises(SchemaRegistryError, match=f"subject '{model.topic}-value' refuses"):
        model.publish([("1", "ann")], "id string, name string")
    assert model.end() == before and model.versions() == model.versions(f"{model.topic}-key") == [1]


@pytest.mark.nightly
@both_formats
def test_registered_schema_has_the_descriptions_of_the_model(
    dbt_project: Callable[..., Project], broker: str, registry: str, schema_name: str, format_name: str
) -> None:
    prefix = format_name.replace("-", "_")
    options = f"materialized='upsert_kafka', unique_key='id', format='{format_name}', {prefix}_schema_docs=true"
    described = "models: [{name: users, description: All users, columns: [{name: name, description: Who they are}, {name: id}]}]"
    files = {"models/users.sql": f"{{{{ config({options}) }}}} select 1 as id, 'ann' as name", "models/schema.yml": described}
    project = dbt_project(files, schema_registry={"url": registry})
    with project.one_process():
        assert project.succeed("run").response("users")["inserted"] == 1
        assert project.succeed("run").response("users")["unchanged"] == 1
    answer = requests.get(f"{registry}/subjects/{schema_name}.users-value/versions/latest", timeout=30).json()
    schema = json.loads(answer["schema"])
    if format_name == AVRO:
        assert schema["doc"] == "All users"
        assert [field.get("doc") for field in schema["fields"]] == [None, "Who they are"]
    else:
        assert schema["description"] == "All users"
        assert schema["properties"]["name"]["description"] == "Who they are" and "default" in schema["properties"]["name"]
