"""Every option has an effect: it is read, changes the SQL of its format, or the settings of the registry."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, StringType, StructField, StructType, TimestampNTZType

from dbt.adapters.upsert_kafka.catalog import reading
from dbt.adapters.upsert_kafka.formats import records, registered
from dbt.adapters.upsert_kafka.kafka_client.schema_registry import RegistrySettings
from dbt.adapters.upsert_kafka.options import parse, table
from dbt.adapters.upsert_kafka.options.format_table import FORMAT_OPTIONS, FormatOption

PACKAGE = Path(table.__file__).parents[1]
SCHEMA = StructType(
    [
        StructField("id", IntegerType()),
        StructField("name", StringType()),
        StructField("price", DecimalType(10, 2)),
        StructField("tags", ArrayType(StringType())),
        StructField("at", TimestampNTZType()),
    ]
)


def _model_options_read_in_the_package() -> set[str]:
    """Attributes of ModelOptions that modules other than those of `options` read: `options.topic`, `request.options.topic`."""
    trees = [ast.parse(p.read_text()) for p in PACKAGE.rglob("*.py") if p.parent.name != "options"]
    attributes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {
        node.attr
        for node in attributes
        if (isinstance(node.value, ast.Name) and node.value.id in ("options", "parsed"))
        or (isinstance(node.value, ast.Attribute) and node.value.attr == "options")
    }


def test_every_option_with_an_effect_is_read() -> None:
    # Values that become part of others: topics, key_format and value_format, format options.
    read = _model_options_read_in_the_package() | {"format"}
    assert {o.name for o in table.OPTIONS if not o.no_effect} - read == set()


EFFECTS: dict[str, Any] = {
    "field-delimiter": "|",
    "quote-character": "'",
    "escape-character": "^",
    "null-literal": "n/a",
    "array-element-delimiter": "/",
    "timestamp-format.standard": "ISO-8601",
    "database.include": "shop",
    "table.include": "orders",
    "timestamp_mapping.legacy": False,
}
"""A value that differs from the default, for the options that are not false by default."""
REGISTERED = ("avro-confluent", "json-schema-confluent")
IN_THE_SQL = [
    (format_, option)
    for option in FORMAT_OPTIONS
    for format_ in option.formats
    if format_ not in REGISTERED and not option.no_effect and option.name != "ignore-parse-errors"
]


@pytest.mark.parametrize(("format_", "option"), IN_THE_SQL, ids=lambda value: getattr(value, "name", value))
def test_format_option_changes_the_sql_that_encodes_or_decodes(format_: str, option: FormatOption) -> None:
    def sql(**config: Any) -> str:
        parsed = parse("kafka_source", "users", {"topic": "users", "unique_key": "id", "value_format": format_, **config})
        layout = records.layout(parsed, "users", SCHEMA)
        return layout.value_format.encode(layout.value) + reading.query(layout, "users__topic", per_key=False)

    name = table.underscored(f"{format_}.{option.name}")
    assert sql(**{name: EFFECTS.get(option.name, True)}) != sql()


REGISTRY_OPTIONS = {
    "url": "http://other:8081",
    "ssl.keystore.location": "client.pem",
    "ssl.truststore.location": "trusted.pem",
}


def test_registry_options_change_the_registry_settings() -> None:
    def settings_with(**options: str) -> RegistrySettings:
        return RegistrySettings.of({"url": "http://registry:8081"}, options)

    without_effect = [
        name for name, value in REGISTRY_OPTIONS.items() if settings_with(**{table.underscored(name): value}) == settings_with()
    ]
    assert without_effect == []
    assert registered.subject_of("users", "value", {"subject": "other"}) == "other"


def test_every_registry_option_has_a_test() -> None:
    options = [o for o in FORMAT_OPTIONS if set(REGISTERED) & set(o.formats) and not o.no_effect]
    # tests/functional/test_registry.py
    functional = {"schema", "schema-docs", "auto-register", "use-latest-version", "subject-name-strategy", "compatibility"}
    functional.add("schema-references")  # test_registry_references.py
    assert {o.name for o in options if o.type.describe != "refused"} == REGISTRY_OPTIONS.keys() | {"subject"} | functional
