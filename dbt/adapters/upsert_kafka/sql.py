"""Quoting for Spark SQL: every identifier, literal and type that the adapter writes into a statement is quoted here.

The text is valid with all settings of the session but `spark.sql.parser.escapedStringLiterals=true`, which changes the meaning of
a backslash in a literal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def quote_identifier(name: str) -> str:
    """One name part in backticks, so that dots, spaces and quotes are part of the name."""
    return "`" + name.replace("`", "``") + "`"


def quote_literal(text: str) -> str:
    """A string literal. A `$` is escaped, so that Spark does not substitute `${…}`."""
    escapes = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\0": "\\0", "$": "\\u0024"}
    return "'" + "".join(escapes.get(c, c) for c in text) + "'"


def quote_map(options: Mapping[str, str]) -> str:
    """A `map(…)` of string literals, for functions that take options."""
    return "map(" + ", ".join(f"{quote_literal(k)}, {quote_literal(v)}" for k, v in options.items()) + ")"


def type_text(data_type: DataType) -> str:
    """The type as Spark SQL text: `DataType.simpleString` with quoted names of nested fields."""
    # Here, because statements are also built without pyspark, whose import takes long.
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(data_type, ArrayType):
        return f"array<{type_text(data_type.elementType)}>"
    if isinstance(data_type, MapType):
        return f"map<{type_text(data_type.keyType)},{type_text(data_type.valueType)}>"
    if isinstance(data_type, StructType):
        return "struct<" + ",".join(f"{quote_identifier(f.name)}:{type_text(f.dataType)}" for f in data_type.fields) + ">"
    return data_type.simpleString()


def let(name: str, value: str, body: str) -> str:
    """`body` with `name` bound to `value`, which is evaluated once."""
    return f"transform(array({value}), {name} -> {body})[0]"


# A string literal with its escapes, a quoted name, a comment, or the semicolon that ends a statement.
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|;""", re.DOTALL)


def split_statements(sql: str) -> list[str]:
    """The statements of a script, because Spark runs one at a time. Semicolons in literals, names and comments don't count.

    >>> split_statements("select ';'; select 2 -- ;")
    ["select ';'", 'select 2 -- ;']
    """
    ends = [match.start() for match in _TOKEN.finditer(sql) if match[0] == ";"]
    parts = [sql[start:end] for start, end in zip([0, *(e + 1 for e in ends)], [*ends, len(sql)], strict=True)]
    # A part that contains only comments is not a statement.
    return [part.strip() for part in parts if re.sub(r"--[^\n]*|/\*.*?\*/", "", part, flags=re.DOTALL).strip()]


def replace_name(sql: str, name: str, other: str) -> str:
    """The statement with another name of a relation. Literals, comments, names in backticks and longer names stay as they are.

    >>> replace_name("select a.orders.id from a.orders -- a.orders", "a.orders", "b.orders")
    'select b.orders.id from b.orders -- a.orders'
    >>> replace_name("select 'a.orders' from c.a.orders join a.orders_2", "a.orders", "b.orders")
    "select 'a.orders' from c.a.orders join a.orders_2"
    """
    whole_name = re.compile(rf"(?<![\w.`$]){re.escape(name)}(?![\w`$])")
    parts, start = [], 0
    for token in _TOKEN.finditer(sql):
        parts += [whole_name.sub(lambda _: other, sql[start : token.start()]), token[0]]
        start = token.end()
    return "".join([*parts, whole_name.sub(lambda _: other, sql[start:])])
