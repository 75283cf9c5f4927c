"""The client of a schema registry, with a registry that answers from memory, and the bounds of schemas that refer to others."""

from __future__ import annotations

from typing import Any

import pytest

from dbt.adapters.upsert_kafka.errors import SchemaRegistryError
from dbt.adapters.upsert_kafka.kafka_client.schema_references import resolved_json
from dbt.adapters.upsert_kafka.kafka_client.schema_registry import RegistrySettings, Schema, SchemaRegistry

SUBJECT = "orders-value"
SCHEMA = Schema('{"type": "record", "name": "r", "fields": []}')


class FakeRegistry(SchemaRegistry):
    """A registry with one subject.

    Args:
        all_versions: the answer to the compatibility check against the versions that the level names.
        latest: the same against the last version.
    """

    def __init__(self, all_versions: tuple[int, Any] = (404, {}), latest: tuple[int, Any] = (404, {})) -> None:
        super().__init__(RegistrySettings(("http://registry",)))
        self.checks = {"versions?verbose=true": all_versions, "versions/latest?verbose=true": latest}
        self.stored: list[str] = []
        self.level: str | None = None
        self.puts: list[int] = []
        """The statuses of the next requests that set the level."""

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        place, _, version = path.partition(SUBJECT)
        if place == "/compatibility/subjects/":
            return self.checks[version[1:]]
        if place == "/config/":
            if method == "GET":
                return (200, {"compatibilityLevel": self.level}) if self.level else (404, {"error_code": 40408})
            status = self.puts.pop(0)
            self.level = body["compatibility"] if body and status == 200 else self.level
            return status, {"message": "not now"}
        if method == "POST" and body:
            if version == "/versions" and body["schema"] not in self.stored:
                self.stored.append(body["schema"])
            known = body["schema"] in self.stored
            return (200, {"id": 1 + self.stored.index(body["schema"])}) if known else (404, {"error_code": 40403})
        if number := version.removeprefix("/versions").strip("/"):
            return 200, {"id": int(number), "schema": self.stored[int(number) - 1]}
        return 200, list(range(1, 1 + len(self.stored)))


REFUSED = (200, {"is_compatible": False, "messages": ["the age of version 1"]})
ACCEPTED = (200, {"is_compatible": True})


def test_schema_is_checked_against_the_versions_that_the_level_names() -> None:
    with pytest.raises(SchemaRegistryError, match="refuses the schema of these columns as incompatible: the age of version 1"):
        FakeRegistry(REFUSED, latest=ACCEPTED).check(SUBJECT, SCHEMA)
    FakeRegistry(ACCEPTED, latest=REFUSED).check(SUBJECT, SCHEMA)


@pytest.mark.parametrize("unknown_path", [(404, {}), (404, {"message": "Not found", "code": 404}), (405, {})])
def test_registry_that_compares_with_one_version_is_asked_for_the_last(unknown_path: tuple[int, Any]) -> None:
    with pytest.raises(SchemaRegistryError, match="incompatible: the age of version 1"):
        FakeRegistry(unknown_path, latest=REFUSED).check(SUBJECT, SCHEMA)


def test_new_subject_is_compatible() -> None:
    FakeRegistry((404, {"error_code": 40401}), latest=REFUSED).check(SUBJECT, SCHEMA)


def test_level_that_could_not_be_set_is_set_by_the_next_run() -> None:
    registry = FakeRegistry()
    registry.puts = [500, 200]
    with pytest.raises(SchemaRegistryError, match=f"HTTP 500 for subject '{SUBJECT}': not now"):
        registry.register(SUBJECT, SCHEMA, "FULL")
    assert (registry.stored, registry.level) == ([SCHEMA.text], None)
    assert registry.register(SUBJECT, SCHEMA, "FULL") == 1
    assert registry.level == "FULL"


@pytest.mark.parametrize(("stored", "level"), [([SCHEMA.text, "{}"], None), ([SCHEMA.text], "NONE"), (["{}"], None)])
def test_level_of_a_subject_in_use_is_not_changed(stored: list[str], level: str | None) -> None:
    registry = FakeRegistry()
    registry.stored, registry.level = stored, level
    registry.register(SUBJECT, SCHEMA, "FULL")
    assert registry.level == level


def test_references_that_multiply_are_refused() -> None:
    bomb: dict[str, Any] = {"a0": {"type": "string"}}
    for i in range(1, 30):
        bomb[f"a{i}"] = {"properties": {name: {"$ref": f"#/definitions/a{i - 1}"} for name in "xyz"}}
    with pytest.raises(ValueError, match="more than 100000 parts"):
        resolved_json({"$ref": "#/definitions/a29", "definitions": bomb}, {})
    chain = {f"a{i}": {"$ref": f"#/definitions/a{i + 1}"} for i in range(2000)} | {"a2000": {"type": "string"}}
    with pytest.raises(ValueError, match="100 within another"):
        resolved_json({"$ref": "#/definitions/a0", "definitions": chain}, {})
    assert resolved_json({"$ref": "#/definitions/a1990", "definitions": chain}, {}) == {"type": "string"}
