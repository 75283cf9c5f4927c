"""Schemas that refer to schemas of other subjects: puts the text of the others into the place where they are named.

Readers and comparisons need one text that stands by itself. Leaves to `schema_registry` where the other texts come from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastavro.repository.base import AbstractSchemaRepository, SchemaRepositoryError
from fastavro.schema import SchemaParseException, UnknownType, load_schema

AVRO, JSON = "AVRO", "JSON"
_MARKS = ("__fastavro_parsed", "__named_schemas")


def inlined(kind: str, text: str, others: Mapping[str, str]) -> str:
    """The schema with the definitions of the schemas that it refers to.

    Args:
        kind: AVRO or JSON.
        others: texts by the names under which the schema, or one of the others, refers to them.

    Raises:
        ValueError: a name has no text, or the schemas contain themselves.

    >>> inlined(JSON, '{"properties": {"home": {"$ref": "address.json"}}}', {"address.json": '{"type": "object"}'})
    '{"properties":{"home":{"type":"object"}}}'
    """
    schema = _avro(text, others) if kind == AVRO else resolved_json(json.loads(text), others)
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


MAX_PARTS, MAX_REFERENCES = 100_000, 100
"""A few lines of schema can stand for billions of parts, because a `$ref` may point to a part with further ones."""


class _Others(AbstractSchemaRepository):  # type: ignore[misc,unused-ignore]
    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts

    def load(self, name: str) -> Any:
        if name not in self.texts:
            raise SchemaRepositoryError(name)
        return json.loads(self.texts[name])


def _avro(text: str, others: Mapping[str, str]) -> Any:
    try:
        schema = load_schema("", repo=_Others({**others, "": text}))
    except (SchemaRepositoryError, UnknownType) as error:
        raise ValueError(f"it refers to '{error}', which is not in its references") from error
    except SchemaParseException as error:
        raise ValueError(" ".join(str(error).split())) from error
    return {name: part for name, part in schema.items() if name not in _MARKS} if isinstance(schema, dict) else schema


def resolved_json(schema: Any, others: Mapping[str, str]) -> Any:
    """A JSON Schema with what its `$ref` point to.

    Raises:
        ValueError: a `$ref` leads nowhere or into itself, or the result is too large.

    >>> resolved_json({"items": {"$ref": "#/definitions/a"}, "definitions": {"a": {"type": "null"}}}, {})
    {'items': {'type': 'null'}, 'definitions': {'a': {'type': 'null'}}}
    """

    parts = 0

    def resolved(part: Any, document: Any, within: tuple[tuple[int, str], ...]) -> Any:
        nonlocal parts
        parts += 1
        if parts > MAX_PARTS or len(within) > MAX_REFERENCES:
            raise ValueError(f"$ref of $ref: it has more than {MAX_PARTS} parts, or {MAX_REFERENCES} within another")
        if isinstance(part, list):
            return [resolved(member, document, within) for member in part]
        if not isinstance(part, dict):
            return part
        target = part.get("$ref")
        # A column may have this name too.
        if not isinstance(target, str):
            return {name: resolved(member, document, within) for name, member in part.items()}
        name, _, pointer = target.partition("#")
        if name and name not in documents:
            raise ValueError(f"it refers to '{name}', which is not in its references")
        found = documents[name] if name else document
        here = (id(found), pointer)
        if here in within:
            raise ValueError(f"'{target}' contains itself")
        return resolved(_at(found, pointer, target), found, (*within, here))

    documents = {name: json.loads(text) for name, text in others.items()}
    return resolved(schema, schema, ())


def _at(document: Any, pointer: str, target: str) -> Any:
    for step in filter(None, pointer.split("/")):
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(document, dict) or key not in document:
            raise ValueError(f"'{target}' points to nothing")
        document = document[key]
    return document
