"""Spark's types from the text in a state record (struct<`a`:int,`b`:array<string>>), without a JVM."""

from __future__ import annotations

import re

from pyspark.sql import types as T

_PRIMITIVES: dict[str, T.DataType] = {
    kind().simpleString(): kind()
    for kind in (
        T.StringType, T.BinaryType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType,
        T.DoubleType, T.DateType, T.TimestampType, T.TimestampNTZType,
    )
}  # fmt: skip


def parse_type(text: str) -> T.DataType:
    """The type that `sql.type_text` writes as `text`.

    >>> parse_type("struct<`a`:int,`b,c`:map<string,decimal(10,2)>>").simpleString()
    'struct<a:int,b,c:map<string,decimal(10,2)>>'

    Raises:
        ValueError: the text is no type, or a type that no format supports.
    """
    if text in _PRIMITIVES:
        return _PRIMITIVES[text]
    if decimal := re.fullmatch(r"decimal\((\d+),(-?\d+)\)", text):
        return T.DecimalType(int(decimal[1]), int(decimal[2]))
    if re.fullmatch(r"(var)?char\(\d+\)", text):
        return T.StringType()
    kind, _, inner = text.partition("<")
    parts = _split(inner[:-1]) if inner.endswith(">") else []
    if kind == "array" and len(parts) == 1:
        return T.ArrayType(parse_type(parts[0]))
    if kind == "map" and len(parts) == 2:
        return T.MapType(parse_type(parts[0]), parse_type(parts[1]))
    if kind == "struct" and parts:
        members = [re.fullmatch(r"`((?:[^`]|``)*)`:(.*)", part, re.DOTALL) for part in parts]
        if all(members):
            return T.StructType([T.StructField(m[1].replace("``", "`"), parse_type(m[2])) for m in members if m])
    raise ValueError(f"'{text}' is not a type of Spark")


def _split(text: str) -> list[str]:
    """Split at the commas that are neither inside of brackets nor in a quoted name."""
    parts, depth, is_name = [""], 0, False
    for character in text:
        is_name ^= character == "`"
        depth += 0 if is_name else {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0 and not is_name:
            parts.append("")
        else:
            parts[-1] += character
    return parts
