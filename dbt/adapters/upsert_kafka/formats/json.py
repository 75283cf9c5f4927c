"""Format `json`: one object per record, the bytes of Flink's json format.

Spark's `to_json` writes everything that it writes as Flink does. What differs is prepared for it (timestamps), put between its
pieces as text (decimals, which Flink strips of zeros and writes with exponents) or replaced in its result (characters beyond the
BMP, which Flink escapes). NaN and the infinities are the strings "NaN", "Infinity" and "-Infinity", as in Flink.
Spark's maps have no null keys, so `map_null_key_mode` and `map_null_key_literal` never come into play.
"""

from __future__ import annotations

from itertools import groupby

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dbt.adapters.upsert_kafka.formats import Format, Side, checked_struct, contains_type, unsupported
from dbt.adapters.upsert_kafka.formats.text import decimal_text, timestamp_ntz_text, timestamp_text
from dbt.adapters.upsert_kafka.sql import let, quote_identifier, quote_literal, quote_map, type_text

CORRUPT = "__upsert_kafka_corrupt"


class Json(Format):
    name = "json"

    def problems(self, side: Side) -> list[str]:
        return unsupported(self.name, side, refusal)

    def encode(self, side: Side) -> str:
        return object_bytes(side, [(f.name, quote_identifier(f.column), f.type) for f in side.fields])

    def decode(self, side: Side, payload: str) -> str:
        schema = StructType([StructField(f.name, f.type) for f in side.fields] + [StructField(CORRUPT, StringType())])
        options = {"timeZone": "UTC", "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        ddl = ", ".join(f"{quote_identifier(f.name)} {type_text(f.dataType)}" for f in schema.fields)
        parsed = f"from_json(CAST({payload} AS STRING), {quote_literal(ddl)}, {quote_map(options)})"
        columns = {f.column: f"r.{quote_identifier(f.name)}" for f in side.fields}
        # from_json gives NULL for an empty string
        readable = f"r IS NOT NULL AND r.{CORRUPT} IS NULL"
        if side.options.get("fail_on_missing_field"):
            names = ", ".join(quote_literal(f.name) for f in side.fields)
            readable += f" AND size(array_except(array({names}), json_object_keys(CAST({payload} AS STRING)))) = 0"
        body = checked_struct(self.name, side, payload, columns, readable)
        return f"CASE WHEN {payload} IS NOT NULL THEN {let('r', parsed, body)} END"


def object_bytes(side: Side, parts: list[tuple[str, str, DataType]]) -> str:
    """The bytes of an object with these members (name, expression, type), by the side's options."""
    return f"CAST({_escape_supplementary(_Writer(side).object_text(parts))} AS BINARY)"


def refusal(data_type: DataType) -> str | None:
    """Why JSON can't carry the type."""
    if isinstance(data_type, MapType) and not isinstance(data_type.keyType, StringType):
        return "a JSON object has string keys: turn the map's keys into strings (transform_keys), or use an array of structs"
    return None


class _Writer:
    """The expressions that `to_json` needs, for one side's options."""

    def __init__(self, side: Side) -> None:
        self.iso = side.options.get("timestamp_format_standard", "SQL") == "ISO-8601"
        self.plain_decimals = bool(side.options.get("encode_decimal_as_plain_number", False))
        self.ignore_nulls = bool(side.options.get("encode_ignore_null_fields", False))
        self.options = quote_map({"ignoreNullFields": "true" if self.ignore_nulls else "false"})

    def object_text(self, parts: list[tuple[str, str, DataType]]) -> str:
        """JSON text of an object with these members (name, expression, type)."""
        if not any(_has_decimal(t) for _, _, t in parts):
            return f"to_json({self.struct(parts)}, {self.options})"
        members: list[str] = []
        for has_decimal, group in groupby(parts, key=lambda part: _has_decimal(part[2])):
            if not has_decimal:
                inner = let("j", f"to_json({self.struct(list(group))}, {self.options})", "substring(j, 2, char_length(j) - 2)")
                members.append(f"nullif({inner}, '')" if self.ignore_nulls else inner)
                continue
            for name, expression, data_type in group:
                label = let("j", f"to_json(map({quote_literal(name)}, 0))", "substring(j, 2, char_length(j) - 3)")
                text = self.text(expression, data_type)
                members.append(f"concat({label}, {text if self.ignore_nulls else _or_null(text)})")
        return f"concat('{{', concat_ws(',', {', '.join(members)}), '}}')"

    def struct(self, parts: list[tuple[str, str, DataType]]) -> str:
        return "named_struct(" + ", ".join(f"{quote_literal(n)}, {self.value(e, t)}" for n, e, t in parts) + ")"

    def value(self, expression: str, data_type: DataType) -> str:
        """The expression, turned into one that `to_json` writes as Flink does; the type holds no decimal."""
        if not _needs_care(data_type):
            return expression
        if isinstance(data_type, DateType):
            return f"CAST({expression} AS STRING)"
        if isinstance(data_type, TimestampNTZType):
            return timestamp_ntz_text(expression, self.iso)
        if isinstance(data_type, TimestampType):
            return timestamp_text(expression, self.iso)
        if isinstance(data_type, ArrayType):
            return f"transform({expression}, x -> {self.value('x', data_type.elementType)})"
        if isinstance(data_type, MapType):
            return f"transform_values({expression}, (k, x) -> {self.value('x', data_type.valueType)})"
        assert isinstance(data_type, StructType)
        return f"CASE WHEN {expression} IS NOT NULL THEN {self.struct(_members(expression, data_type))} END"

    def text(self, expression: str, data_type: DataType) -> str:
        """JSON text of a value whose type holds a decimal; NULL for NULL."""
        if isinstance(data_type, DecimalType):
            return f"try_cast({expression} AS STRING)" if self.plain_decimals else decimal_text(expression, data_type)
        if isinstance(data_type, ArrayType):
            items = f"transform({expression}, x -> {_or_null(self.text('x', data_type.elementType))})"
            return f"concat('[', array_join({items}, ','), ']')"
        if isinstance(data_type, MapType):
            key = let("j", "to_json(map(k, 0))", "substring(j, 2, char_length(j) - 3)")
            entry = f"concat({key}, {_or_null(self.text('x', data_type.valueType))})"
            entries = f"map_values(transform_values({expression}, (k, x) -> {entry}))"
            return f"concat('{{', array_join({entries}, ','), '}}')"
        assert isinstance(data_type, StructType)
        return f"CASE WHEN {expression} IS NOT NULL THEN {self.object_text(_members(expression, data_type))} END"


def _members(expression: str, struct: StructType) -> list[tuple[str, str, DataType]]:
    return [(f.name, f"{expression}.{quote_identifier(f.name)}", f.dataType) for f in struct.fields]


def _or_null(text: str) -> str:
    return f"coalesce({text}, 'null')"


def _has_decimal(data_type: DataType) -> bool:
    return contains_type(data_type, DecimalType)


def _needs_care(data_type: DataType) -> bool:
    return contains_type(data_type, (DateType, TimestampNTZType, TimestampType))


def _escape_supplementary(text: str) -> str:
    """The text with each character beyond the BMP as two `\\uXXXX`: outside of strings and names JSON has none."""
    pieces = r"regexp_extract_all(j, '[^\\x{10000}-\\x{10FFFF}]+|[\\x{10000}-\\x{10FFFF}]', 0)"
    units = "hex(encode(c, 'UTF-16BE'))"
    escaped = rf"concat('\\u', left({units}, 4), '\\u', right({units}, 4))"
    replaced = f"array_join(transform({pieces}, c -> if(char_length(c) = 1 AND octet_length(c) = 4, {escaped}, c)), '')"
    return let("j", text, f"if(octet_length(j) = char_length(j), j, {replaced})")
