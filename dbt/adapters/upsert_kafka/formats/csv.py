"""Format `csv`: one line per record without a line break, quoted by the rules of Flink's csv format.

Flink quotes text of more than 24 UTF-16 code units, and text with a character that is not greater than the delimiter or the quote
character, even if quotes are not needed. Numbers and booleans are never quoted. An array or struct is one field: its elements
joined with the array delimiter.

Some values have the same text in Flink's csv. They are encoded like in Flink, and decoded as follows:
- an empty field is NULL. '' and X'' are decoded to NULL, unless `null_literal` is set or the column is not nullable (a key);
- with `null_literal`, a string equal to it is decoded to NULL;
- an empty array, an array of one NULL and a NULL array are an empty field; so is a struct of one NULL field;
- an element that contains the array delimiter is decoded to two elements. With quotes disabled, a field that contains the
  delimiter is decoded to two fields.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dbt.adapters.upsert_kafka.formats import Field, ParsedFormat, Side, checked_struct, unsupported
from dbt.adapters.upsert_kafka.formats.text import decimal_text, timestamp_ntz_text, timestamp_text
from dbt.adapters.upsert_kafka.sql import let, quote_identifier, quote_literal, quote_map, type_text

CORRUPT = "__upsert_kafka_corrupt"
_TEXTS = (StringType, BinaryType, DateType, TimestampNTZType, TimestampType, ArrayType, StructType)
_LONGEST_UNQUOTED = 24
BACKSLASH = "\\"
_NUL = "\uffff"
"""Replaces NUL while a line is parsed. U+FFFF is not a character, so that it does not occur in text."""


class Csv(ParsedFormat):
    name = "csv"

    def problems(self, side: Side) -> list[str]:
        return unsupported(self.name, side, _refusal)

    def encode(self, side: Side) -> str:
        dialect = _Dialect(side)
        fields = [f"coalesce({dialect.field(quote_identifier(f.column), f.type)}, {dialect.null})" for f in side.fields]
        separator = f", {quote_literal(dialect.delimiter)}, "
        return f"CAST(concat({separator.join(fields)}) AS BINARY)"

    def parse(self, side: Side, payload: str) -> str:
        schema = ", ".join(f"{name} STRING" for name in [*_names(side), CORRUPT])
        # Spark's parser ends a line at a NUL.
        line = f"replace(CAST({payload} AS STRING), {quote_literal(chr(0))}, {quote_literal(_NUL)})"
        return f"from_csv({line}, {quote_literal(schema)}, {_Dialect(side).reader_options()})"

    def to_columns(self, side: Side, payload: str, parsed: str) -> str:
        dialect = _Dialect(side)
        readable = [f"{parsed}.{CORRUPT} IS NULL"]
        if len(side.fields) > 1:
            readable.append(f"octet_length({payload}) > 0")
        columns = {}
        for name, f in zip(_names(side), side.fields, strict=True):
            text = dialect.restored(f"{parsed}.{name}", f)
            columns[f.column] = dialect.value(text, f.type)
            readable.append(dialect.is_readable(text, f.type))
        return checked_struct(self.name, side, payload, columns, " AND ".join(readable))


def _names(side: Side) -> list[str]:
    # A line contains no names. The column names are not used because Spark may treat two of them as equal (case).
    return [f"c{i}" for i in range(len(side.fields))]


def _refusal(data_type: DataType) -> str | None:
    if isinstance(data_type, MapType):
        return "csv has no maps; select the entries as columns, convert the map to a string with to_json, or use json or avro"
    nested: list[DataType] = []
    if isinstance(data_type, ArrayType):
        nested = [data_type.elementType]
    if isinstance(data_type, StructType):
        nested = [f.dataType for f in data_type.fields]
    if any(isinstance(t, (ArrayType, StructType, MapType)) for t in nested):
        return "csv has one level of nesting; convert the inner value to a string with to_json, or use json or avro"
    return None


def _regex(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"


class _Dialect:
    """The expressions that encode and decode a field, for the options of one side.

    Encode: `field`, `text`, `quoted`. Decode: `reader_options`, `restored`, `value`, `is_readable`.
    """

    def __init__(self, side: Side) -> None:
        options = side.options
        self.delimiter: str = options.get("field_delimiter", ",")
        self.quote: str | None = None if options.get("disable_quote_character", False) else options.get("quote_character", '"')
        self.escape: str | None = options.get("escape_character")
        self.null_literal: str | None = options.get("null_literal")
        self.array_delimiter: str = options.get("array_element_delimiter", ";")
        self.scientific = bool(options.get("write_bigdecimal_in_scientific_notation", False))
        self.null = quote_literal(self.null_literal or "")
        self.first_safe = max(ord(self.delimiter), ord(self.quote or "\0")) + 1

    def field(self, expression: str, data_type: DataType) -> str:
        """SQL expression of the field's text, quoted where Flink quotes. NULL for NULL."""
        text = self.text(expression, data_type)
        if self.quote is None or not isinstance(data_type, _TEXTS):
            return text
        if (
            isinstance(data_type, (TimestampNTZType, TimestampType))
            and self.is_unsafe(" ")
            and self.quote not in "0123456789-+:. Z"
        ):
            return self._in_quotes(text)
        if isinstance(data_type, (ArrayType, StructType)):
            return let("t", text, self.quoted("t"))
        return self.quoted(text)

    def text(self, expression: str, data_type: DataType) -> str:
        """SQL expression of the field's text without quotes. NULL for NULL."""
        if isinstance(data_type, StringType):
            return expression
        if isinstance(data_type, BinaryType):
            return f"base64({expression})"
        if isinstance(data_type, DecimalType):
            return decimal_text(expression, data_type) if self.scientific else f"try_cast({expression} AS STRING)"
        if isinstance(data_type, TimestampNTZType):
            return timestamp_ntz_text(expression, iso=False)
        if isinstance(data_type, TimestampType):
            return timestamp_text(expression, iso=False)
        if isinstance(data_type, ArrayType):
            is_text = isinstance(data_type.elementType, StringType)
            items = expression if is_text else f"transform({expression}, x -> {self.text('x', data_type.elementType)})"
            return f"array_join({items}, {quote_literal(self.array_delimiter)}, {self.null})"
        if isinstance(data_type, StructType):
            members = [self.text(f"{expression}.{quote_identifier(f.name)}", f.dataType) for f in data_type.fields]
            items = ", ".join(f"coalesce({member}, {self.null})" for member in members)
            return f"CASE WHEN {expression} IS NOT NULL THEN concat_ws({quote_literal(self.array_delimiter)}, {items}) END"
        return f"CAST({expression} AS STRING)"

    def is_unsafe(self, character: str) -> bool:
        """Whether any text with this character is quoted."""
        return ord(character) < self.first_safe or character == (self.escape or BACKSLASH)

    def quoted(self, text: str) -> str:
        """SQL expression of the text in quotes, if Flink quotes it."""
        assert self.quote is not None
        doubled = f"replace({text}, {quote_literal(self.quote)}, {quote_literal(self.quote * 2)})"
        marks = [self.quote]
        if self.escape is not None and self.escape != self.quote:
            doubled = f"replace({doubled}, {quote_literal(self.escape)}, {quote_literal(self.escape * 2)})"
            marks.append(self.escape)
        has_marks = " OR ".join(f"contains({text}, {quote_literal(mark)})" for mark in marks)
        in_quotes = f"if({has_marks}, {self._in_quotes(doubled)}, {self._in_quotes(text)})"
        special = _regex(self.escape or BACKSLASH)
        safe = f"\\A[{_regex(chr(self.first_safe))}-\\x{{FFFF}}&&[^{special}]]{{0,{_LONGEST_UNQUOTED}}}\\z"
        unsafe = f"[{_regex(chr(0))}-{_regex(chr(self.first_safe - 1))}{special}]"
        # A character outside the BMP has two UTF-16 code units.
        is_long = f"octet_length(encode({text}, 'UTF-16BE')) > {2 * _LONGEST_UNQUOTED}"
        needed = f"NOT {text} RLIKE {quote_literal(safe)} AND ({text} RLIKE {quote_literal(unsafe)} OR {is_long})"
        if self.is_unsafe(" "):
            # The most frequent reason. Faster than the regular expressions.
            needed = f"contains({text}, ' ') OR {needed}"
        return f"if({needed}, {in_quotes}, {text})"

    def _in_quotes(self, text: str) -> str:
        mark = quote_literal(self.quote or "")
        return f"concat({mark}, {text}, {mark})"

    def reader_options(self) -> str:
        """The options of `from_csv`."""
        return quote_map(
            {
                "sep": BACKSLASH * 2 if self.delimiter == BACKSLASH else self.delimiter,
                "quote": self.quote or "",
                "escape": self.quote or "",
                "mode": "PERMISSIVE",
                "columnNameOfCorruptRecord": CORRUPT,
                # keeps line breaks inside of quotes
                "multiLine": "true",
                "nullValue": "",
                "maxCharsPerColumn": "-1",
            }
        )

    def restored(self, text: str, field: Field) -> str:
        """SQL expression of the text that was encoded, from the text of a parsed field. NULL if the text represents NULL."""
        if isinstance(field.type, (StringType, ArrayType, StructType)):
            text = f"replace({text}, {quote_literal(_NUL)}, {quote_literal(chr(0))})"
        if self.escape is not None and self.escape != self.quote and self.quote is not None:
            text = f"regexp_replace({text}, {quote_literal(f'(?s){_regex(self.escape)}(.)')}, '$1')"
        if self.null_literal:
            return f"nullif(coalesce({text}, ''), {self.null})"
        if not field.nullable and isinstance(field.type, (StringType, BinaryType)):
            return f"coalesce({text}, '')"
        return text

    def value(self, text: str, data_type: DataType) -> str:
        """SQL expression that converts a field's text to its type. NULL if it can't be converted."""
        if isinstance(data_type, StringType):
            return text
        if isinstance(data_type, BinaryType):
            return f"try_to_binary({text}, 'base64')"
        if isinstance(data_type, TimestampType):
            # Without a time zone the value would depend on the session time zone. Flink requires the Z as well.
            return f"CASE WHEN {text} LIKE '%Z' THEN try_cast({text} AS TIMESTAMP) END"
        if isinstance(data_type, ArrayType):
            return f"transform({self._elements(text)}, x -> {self.value(self._element('x'), data_type.elementType)})"
        if isinstance(data_type, StructType):
            return f"CASE WHEN {text} IS NOT NULL THEN {let('e', self._elements(text), self._struct(data_type))} END"
        return f"try_cast({text} AS {type_text(data_type)})"

    def is_readable(self, text: str, data_type: DataType) -> str:
        """SQL condition: the text is NULL or can be converted to the type."""
        if isinstance(data_type, StringType):
            return "true"
        if isinstance(data_type, ArrayType):
            element = self.is_readable(self._element("x"), data_type.elementType)
            return f"coalesce(forall({self._elements(text)}, x -> {element}), true)"
        if isinstance(data_type, StructType):
            tests = [f"size(e) = {len(data_type.fields)}"]
            tests += [self.is_readable(self._element(f"e[{i}]"), f.dataType) for i, f in enumerate(data_type.fields)]
            # AND has no guaranteed order of evaluation, and with ANSI an index out of bounds is an error.
            test = f"CASE WHEN {tests[0]} THEN {' AND '.join(tests[1:])} ELSE false END"
            return f"({text} IS NULL OR {let('e', self._elements(text), test)})"
        return f"({text} IS NULL OR {self.value(text, data_type)} IS NOT NULL)"

    def _elements(self, text: str) -> str:
        return f"split({text}, {quote_literal(_regex(self.array_delimiter))})"

    def _element(self, text: str) -> str:
        return f"nullif({text}, {self.null})"

    def _struct(self, data_type: StructType) -> str:
        members = [
            f"{quote_literal(f.name)}, {self.value(self._element(f'e[{i}]'), f.dataType)}" for i, f in enumerate(data_type.fields)
        ]
        return f"named_struct({', '.join(members)})"
