"""Format `canal-json`: `{"data": [{…}, …], "old": [{…}, …], "type": "UPDATE"}`, as Canal writes it and Flink reads and writes it.

A message contains several rows. In an update, `old` contains the old values of the changed columns. Canal writes all values as
strings, so values are parsed from strings. Messages of type CREATE, and messages that `database_include` and `table_include`
exclude, contain no changes. Rows are encoded as INSERT and DELETE.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from dbt.adapters.upsert_kafka.formats import Side
from dbt.adapters.upsert_kafka.formats.changelog import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    ChangelogFormat,
    change,
    row_type,
)
from dbt.adapters.upsert_kafka.formats.json import object_bytes
from dbt.adapters.upsert_kafka.sql import let, quote_literal, type_text

ENVELOPE = "data ARRAY<MAP<STRING, STRING>>, old ARRAY<MAP<STRING, STRING>>, type STRING, database STRING, table STRING"
NESTED = (ArrayType, MapType, StructType)


class CanalJson(ChangelogFormat):
    name = "canal-json"
    missing_image = "an update needs `old` with the same number of rows as `data`"

    def changes(self, side: Side, payload: str, images: bool) -> str:
        no_changes = "array()"
        excluded = [
            f"NOT coalesce(e.{part} RLIKE {quote_literal(f'^(?:{side.options[option]})$')}, false)"
            for part, option in (("database", "database_include"), ("table", "table_include"))
            if side.options.get(option)
        ]
        updates = "flatten(transform(arrays_zip(e.data, e.old), z -> array({}, {})))".format(
            change(UPDATE_BEFORE, _row(side, lambda name: f"if(map_contains_key(z.old, {name}), z.old[{name}], z.data[{name}])")),
            change(UPDATE_AFTER, _row(side, lambda name: f"z.data[{name}]")),
        )
        cases = [
            *(f"WHEN {condition} THEN {no_changes}" for condition in excluded),
            f"WHEN e.type = 'CREATE' THEN {no_changes}",
            f"WHEN e.data IS NULL OR NOT forall(e.data, m -> {_readable(side)}) THEN NULL",
            f"WHEN e.type = 'INSERT' THEN {self._each(side, INSERT)}",
            f"WHEN e.type = 'DELETE' THEN {self._each(side, DELETE)}",
            f"WHEN e.type = 'UPDATE' AND size(e.old) = size(e.data) AND forall(e.old, m -> {_readable(side)}) THEN {updates}",
        ]
        if not images:
            cases.append(f"WHEN e.type = 'UPDATE' AND e.old IS NULL THEN {self._each(side, UPDATE_AFTER)}")
        parsed = f"from_json(CAST({payload} AS STRING), '{ENVELOPE}')"
        return let("e", parsed, f"CASE {' '.join(cases)} END")

    def event(self, side: Side, row: str, deleted: bool) -> str:
        kind = "'DELETE'" if deleted else "'INSERT'"
        return object_bytes(side, [("data", f"array({row})", ArrayType(row_type(side))), ("type", kind, StringType())])

    def _each(self, side: Side, kind: str) -> str:
        return f"transform(e.data, m -> {change(kind, _row(side, lambda name: f'm[{name}]'))})"


def _row(side: Side, text_of: Callable[[str], str]) -> str:
    members = (f"{quote_literal(f.name)}, {_value(text_of(quote_literal(f.name)), f.type)}" for f in side.fields)
    return f"named_struct({', '.join(members)})"


def _readable(side: Side) -> str:
    """SQL condition: every non-NULL entry of the map `m` can be converted to the type of its field."""
    tests = [
        f"(m[{name}] IS NULL OR {_value(f'm[{name}]', f.type)} IS NOT NULL)"
        for f in side.fields
        if not isinstance(f.type, StringType) and (name := quote_literal(f.name))
    ]
    return " AND ".join(tests) or "true"


def _value(text: str, data_type: DataType) -> str:
    if isinstance(data_type, StringType):
        return text
    if isinstance(data_type, BinaryType):
        return f"try_to_binary({text}, 'base64')"
    if isinstance(data_type, TimestampType):
        # Without a time zone the value would depend on the session time zone. Such values need TIMESTAMP_NTZ.
        return f"CASE WHEN {text} LIKE '%Z' THEN try_cast({text} AS TIMESTAMP) END"
    if isinstance(data_type, NESTED):
        return f"from_json({text}, {quote_literal(type_text(data_type))})"
    return f"try_cast({text} AS {type_text(data_type)})"
