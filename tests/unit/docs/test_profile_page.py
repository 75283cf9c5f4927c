"""docs/profile.md lists every field of the profile with its default, and its examples are valid."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from typing import Any

import yaml

from dbt.adapters.upsert_kafka.credentials import DBT_FIELDS, UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.kafka_client.schema_registry import SETTINGS
from tests.documented import DOCS

PAGE = (DOCS / "profile.md").read_text()
REQUIRED = {"type", "schema", "bootstrap_servers"}
# Fields of dbt's base class and of dbt, with their defaults in the table.
OF_DBT = {"type": "required", "threads": "1"}


def default_of(field: Any) -> str:
    if field.name in REQUIRED:
        return "required"
    value = field.default if field.default is not MISSING else field.default_factory()
    return "none" if value is None else f"`{value}`" if value else "empty"


def test_every_field_is_listed_with_its_default() -> None:
    table = PAGE.split("\n## ")[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE))
    expected = {f.name: default_of(f) for f in fields(UpsertKafkaCredentials) if f.name != "database"} | OF_DBT
    assert listed == expected
    assert {f"`{name}`" for name in DBT_FIELDS} <= set(re.findall(r"`\w+`", table))


def test_every_setting_of_the_registry_is_listed() -> None:
    section = PAGE.split("## The schema registry")[1].split("\n## ")[0]
    listed = set(re.findall(r"^\| `([\w.-]+)` \|", section, re.MULTILINE))
    expected = {name for name in SETTINGS if not name.endswith("_credentials_source")}
    assert {re.sub("[.-]", "_", name) for name in listed} == expected


def test_examples_are_valid() -> None:
    blocks = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    target = blocks[0]["my_project"]["outputs"]["dev"]
    for block in blocks[1:]:
        UpsertKafkaCredentials.validate({**target, **block})
