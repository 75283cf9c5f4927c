"""The schema with which Spark reads Avro that was written with another schema.

Avro resolves fields by name and widens numbers. It converts neither units of timestamps nor scales of decimals, and Spark takes
the bytes for a value of the reader's unit or scale. So the reader gets the unit and the scale of the writer; Spark converts the
columns.
"""

from __future__ import annotations

import json
from typing import Any

_PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
_NAMED = {"record", "error", "enum", "fixed"}


class OtherValuesError(Exception):
    """The bytes would be read as other values."""


def schemas(written: str, reader: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The writer's schema, and the reader's with the units and scales of the writer.

    Args:
        written: the writer's schema (JSON).
        reader: the schema of the columns.

    Raises:
        OtherValuesError: the reader can't have the values of the writer, for example if a number became a timestamp.
        ValueError: the writer's schema is not that of an Avro record, or Spark can't read it.
    """
    try:
        schema = json.loads(written)
    except ValueError:
        schema = None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        what = " ".join(written.split())[:100]
        raise ValueError(
            f"is not an Avro record: {what}. Only records have columns. Name another subject with the option subject of the "
            "format, or read this side with the format raw"
        )
    renamed = {**reader, "name": schema["name"], "namespace": schema.get("namespace", "")}
    return schema, _as_written(_resolved(schema, "", {}), renamed)


def _resolved(schema: Any, namespace: str, named: dict[str, Any]) -> Any:
    """The schema with the definition of a type in the place of its name. A type that contains itself becomes a cyclic object.

    Args:
        namespace: of the enclosing type, which names without a dot have too.
        named: the definitions so far by their full names.
    """
    if isinstance(schema, list):
        return [_resolved(branch, namespace, named) for branch in schema]
    if isinstance(schema, str):
        full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
        return {"type": schema} if schema in _PRIMITIVES else named.get(full) or named.get(schema) or {"type": schema}
    kind = schema["type"]
    if not isinstance(kind, str):
        return _resolved(kind, namespace, named)
    if kind in _NAMED:
        name = str(schema["name"])
        namespace = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", namespace))
        found = named[f"{namespace}.{name.rpartition('.')[2]}".lstrip(".")] = dict(schema)
        if "fields" in schema:
            found["fields"] = [{**f, "type": _resolved(f["type"], namespace, named)} for f in schema["fields"]]
        return found
    parts = {part: _resolved(schema[part], namespace, named) for part in ("items", "values") if part in schema}
    return {**schema, **parts} if parts or kind in _PRIMITIVES else _resolved(kind, namespace, named)


def _as_written(written: Any, reader: Any) -> Any:
    if isinstance(reader, list):
        return [branch if branch == "null" else _as_written(written, branch) for branch in reader]
    if isinstance(written, list):
        return _as_any_branch([branch for branch in written if branch["type"] != "null"], reader)
    if not isinstance(reader, dict):
        return reader
    if reader["type"] == "record" and "fields" in written:
        types = {f["name"]: f["type"] for f in written["fields"]}
        known = [{**f, "type": _as_written(types[f["name"]], f["type"])} if f["name"] in types else f for f in reader["fields"]]
        return {**reader, "fields": known}
    for part in ("items", "values"):
        if part in reader and part in written:
            return {**reader, part: _as_written(written[part], reader[part])}
    return _scalar(written, reader)


def _as_any_branch(branches: list[Any], reader: Any) -> Any:
    """The reader for a union. It has one unit or scale, whichever branch a value has."""
    found: list[Any] = []
    for branch in branches:
        if _is_readable(branch, reader) and (converted := _as_written(branch, reader)) not in found:
            found.append(converted)
    if len(found) > 1:
        raise OtherValuesError
    return found[0] if found else reader


def _is_readable(written: dict[str, Any], reader: Any) -> bool:
    """Whether Avro takes values of this type for the reader. It widens integers, and takes a string for bytes."""
    wanted = reader["type"] if isinstance(reader, dict) else reader
    return written["type"] == wanted or (written["type"], wanted) in (("int", "long"), ("string", "bytes"))


def _is_number(written: dict[str, Any]) -> bool:
    return written["type"] in ("int", "long")


def _scalar(written: dict[str, Any], reader: dict[str, Any]) -> dict[str, Any]:
    ours, theirs = str(reader.get("logicalType", "")), str(written.get("logicalType", ""))
    is_timestamp, was_timestamp = "timestamp-" in ours, "timestamp-" in theirs
    if is_timestamp and was_timestamp:
        unit = theirs.rpartition("-")[2]
        if unit == "nanos":
            raise ValueError(f"has {theirs}, which Spark does not read; use micros")
        return {**reader, "logicalType": f"{ours.rpartition('-')[0]}-{unit}"}
    if (is_timestamp and _is_number(written)) or (ours == "date" and written["type"] == "int" and theirs != "date"):
        raise OtherValuesError
    if ours == "decimal" and written["type"] in ("bytes", "string"):
        return _decimal(written, reader)
    return reader


def _decimal(written: dict[str, Any], reader: dict[str, Any]) -> dict[str, Any]:
    """The reader with the scale of the writer, if each value of the writer then fits into the reader's type."""
    if written.get("logicalType") != "decimal":
        raise OtherValuesError
    scale, digits = int(written.get("scale", 0)), int(written["precision"])
    if scale == reader["scale"]:
        return reader
    if scale > reader["scale"] or digits - scale > reader["precision"] - reader["scale"]:
        raise OtherValuesError
    return {**reader, "precision": digits, "scale": scale}
