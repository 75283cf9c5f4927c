"""Quoting for Spark SQL text: every identifier, literal and type that the adapter writes into a statement passes here.

The text stays valid whatever the session's settings are, except `spark.sql.parser.escapedStringLiterals=true`, which changes
what a backslash in a literal means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def quote_identifier(name: str) -> str:
    """Back-quote one name part; dots, spaces and quotes in it lose their meaning."""
    return "`" + name.replace("`", "``") + "`"


def quote_literal(text: str) -> str:
    """A string literal. A `$` is written as an escape, so that Spark's `${…}` substitution never sees one."""
    escapes = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\0": "\\0", "$": "\\u0024"}
    return "'" + "".join(escapes.get(c, c) for c in text) + "'"


def quote_map(options: Mapping[str, str]) -> str:
    """A `map(…)` of string literals, as the functions with options take it."""
    return "map(" + ", ".join(f"{quote_literal(k)}, {quote_literal(v)}" for k, v in options.items()) + ")"


def type_text(data_type: DataType) -> str:
    """The type as Spark SQL text. `DataType.simpleString` is not enough: it leaves nested names unquoted."""
    if isinstance(data_type, ArrayType):
        return f"ARRAY<{type_text(data_type.elementType)}>"
    if isinstance(data_type, MapType):
        return f"MAP<{type_text(data_type.keyType)}, {type_text(data_type.valueType)}>"
    if isinstance(data_type, StructType):
        return "STRUCT<" + ", ".join(f"{quote_identifier(f.name)}: {type_text(f.dataType)}" for f in data_type.fields) + ">"
    return data_type.simpleString().upper()


def let(name: str, value: str, body: str) -> str:
    """`body` with `name` bound to `value`, which is evaluated once."""
    return f"transform(array({value}), {name} -> {body})[0]"


# A literal with its escapes, a quoted name, a comment, or what ends a statement.
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|;""", re.DOTALL)


def split_statements(sql: str) -> list[str]:
    """The statements of a text, which Spark takes one by one; a semicolon inside a literal, name or comment ends none."""
    ends = [match.start() for match in _TOKEN.finditer(sql) if match[0] == ";"]
    parts = [sql[start:end] for start, end in zip([0, *(e + 1 for e in ends)], [*ends, len(sql)], strict=True)]
    # A part of comments only is no statement.
    return [part.strip() for part in parts if re.sub(r"--[^\n]*|/\*.*?\*/", "", part, flags=re.DOTALL).strip()]
