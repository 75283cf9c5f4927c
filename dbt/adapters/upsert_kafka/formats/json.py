"""Format `json`: one JSON object per record, with the bytes of Flink's json format.

Most types are encoded by Spark's `to_json`. Where its output differs from Flink's:
- decimals: Flink writes no trailing zeros, and uses exponents. They are converted to text and concatenated with the output of
  `to_json` ("spliced" below);
- dates and timestamps are converted to strings before `to_json`;
- characters outside the BMP: Flink escapes them, `to_json` does not. Text with such characters is rewritten by
  `get_json_object`, which uses the same JSON library and settings as Flink.

NaN and infinities are the strings "NaN", "Infinity" and "-Infinity", as in Flink. Spark's maps have no NULL keys, so that
`map_null_key_mode` and `map_null_key_literal` have no effect.
"""

from __future__ import annotations

from itertools import groupby

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dbt.adapters.upsert_kafka.formats import ParsedFormat, Side, checked_struct, contains_type, unsupported
from dbt.adapters.upsert_kafka.formats.text import decimal_text, timestamp_ntz_text, timestamp_text
from dbt.adapters.upsert_kafka.sql import quote_identifier, quote_literal, quote_map, type_text

# Escapes that start with \uD are surrogates, or Hangul from U+D000 on. For Hangul the rewriting is not needed, but harmless.
ESCAPE, SURROGATE = rb"\u", rb"\uD"
CORRUPT = "__upsert_kafka_corrupt"
_LEADS_BEYOND_BMP = [bytes([lead]) for lead in range(0xF0, 0xF5)]
"""The first bytes of UTF-8 sequences of four bytes. They occur in no other place of UTF-8 text."""
_FIRST_BEYOND_ASCII = "\x80"
_SAMPLES = 3
"""How many string columns are inspected to guess whether a row contains text in another script than Latin."""
_FEW = 3
_TIMES = (DateType, TimestampNTZType, TimestampType)
_SPLICED = (DecimalType, FloatType)
"""Types that are spliced. Floats are, because `get_json_object` reads them as doubles and writes more digits."""
# substring on BINARY cuts bytes; on STRING it would have to count characters.
_INSIDE = "CAST(substring(CAST({0} AS BINARY), 2, octet_length({0}) - 2) AS STRING)"
Member = tuple[str, str, DataType]
"""A member of a JSON object: name, SQL expression, type."""


class Json(ParsedFormat):
    name = "json"

    def problems(self, side: Side) -> list[str]:
        return unsupported(self.name, side, refusal)

    def encode(self, side: Side) -> str:
        return object_bytes(side, [(f.name, quote_identifier(f.column), f.type) for f in side.fields])

    def parse(self, side: Side, payload: str) -> str:
        schema = StructType([StructField(f.name, f.type) for f in side.fields] + [StructField(CORRUPT, StringType())])
        options = {"timeZone": "UTC", "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        ddl = ", ".join(f"{quote_identifier(f.name)} {type_text(f.dataType)}" for f in schema.fields)
        return f"from_json(CAST({payload} AS STRING), {quote_literal(ddl)}, {quote_map(options)})"

    def to_columns(self, side: Side, payload: str, parsed: str) -> str:
        columns = {f.column: f"{parsed}.{quote_identifier(f.name)}" for f in side.fields}
        # from_json returns NULL for an empty string
        readable = f"{parsed} IS NOT NULL AND {parsed}.{CORRUPT} IS NULL"
        if side.options.get("fail_on_missing_field"):
            names = ", ".join(quote_literal(f.name) for f in side.fields)
            readable += f" AND size(array_except(array({names}), json_object_keys(CAST({payload} AS STRING)))) = 0"
        return checked_struct(self.name, side, payload, columns, readable)


def object_bytes(side: Side, members: list[Member]) -> str:
    """SQL expression that encodes an object with these members, with the options of the side."""
    return f"CAST({_Writer(side).object_text(members)} AS BINARY)"


def refusal(data_type: DataType) -> str | None:
    """Why JSON does not support the type, or None."""
    if isinstance(data_type, MapType) and not isinstance(data_type.keyType, StringType):
        return "JSON objects have string keys; convert the keys to strings (transform_keys), or use an array of structs"
    return None


class _Writer:
    """SQL expressions that return JSON text, for the options of one side."""

    def __init__(self, side: Side) -> None:
        self.iso = side.options.get("timestamp_format_standard", "SQL") == "ISO-8601"
        self.plain_decimals = bool(side.options.get("encode_decimal_as_plain_number", False))
        self.ignore_nulls = bool(side.options.get("encode_ignore_null_fields", False))

    def object_text(self, members: list[Member]) -> str:
        """SQL expression of the JSON text of an object with these members."""
        if not any(contains_type(t, _SPLICED) for _, _, t in members) and not _are_few_integers(members):
            return self.written_by_spark(members)
        texts: list[str] = []
        for run in _runs(members):
            if _needs_to_json(run[0][2]):
                text = _INSIDE.format(self.written_by_spark(run))
                texts += ["','", f"nullif({text}, '')" if self.ignore_nulls else text]
                continue
            for name, expression, data_type in run:
                label, text = quote_literal(f",{_json_string(name)}:"), self.text(expression, data_type)
                texts += [label, text if self.ignore_nulls else _or_null(text)]
        if self.ignore_nulls:
            pairs = [f"coalesce(concat({label}, {text}), '')" for label, text in zip(texts[::2], texts[1::2], strict=True)]
            return f"concat('{{', substring(concat({', '.join(pairs)}), 2), '}}')"
        first = "'{" + texts[0][2:]
        return f"concat({', '.join([first, *texts[1:]])}, '}}')"

    def written_by_spark(self, members: list[Member]) -> str:
        """SQL expression of the JSON text of an object whose members contain no spliced types."""
        names = [name for member in members for name in _names(member)]
        if all(map(str.isascii, names)) and not any(_has_text(t) for _, _, t in members):
            return self.to_json(members)
        # Is there a character outside the BMP? With everything but ASCII escaped, one search for an escape answers this, and most
        # rows have none. For text in other scripts (first character outside ASCII) that would escape every character and write
        # the row twice. Such text is written unescaped, and the five possible first bytes of those characters are searched.
        ascii_only, plain = self.to_json(members, writeNonAsciiCharacterAsCodePoint="true"), self.to_json(members)
        samples = [expression for _, expression, data_type in members if isinstance(data_type, StringType)][:_SAMPLES]
        if not samples:
            with_care = f"if({_has(ascii_only, SURROGATE)}, {_as_flink_escapes(ascii_only)}, {plain})"
            return f"if({_has(ascii_only, ESCAPE)}, {with_care}, {ascii_only})"
        # One condition with greatest() instead of several: Spark evaluates its subexpressions once.
        greatest = samples[0] if len(samples) == 1 else f"greatest({', '.join(samples)})"
        other_script = f"coalesce({greatest} >= '{_FIRST_BEYOND_ASCII}', false)"
        written = f"if({other_script}, {plain}, {ascii_only})"
        has_more = " OR ".join(_has(written, lead) for lead in _LEADS_BEYOND_BMP)
        needs_care = f"if({other_script}, {has_more}, {_has(written, ESCAPE)})"
        escaped = f"if({other_script} OR {_has(written, SURROGATE)}, {_as_flink_escapes(written)}, {plain})"
        return f"if({needs_care}, {escaped}, {written})"

    def to_json(self, members: list[Member], **more: str) -> str:
        """A call of `to_json`. `more` are additional options."""
        struct = "named_struct(" + ", ".join(f"{quote_literal(n)}, {self.value(e, t)}" for n, e, t in members) + ")"
        return f"to_json({struct}, {quote_map({'ignoreNullFields': str(self.ignore_nulls).lower(), **more})})"

    def value(self, expression: str, data_type: DataType) -> str:
        """The expression in a form that `to_json` writes like Flink. The type contains no spliced types."""
        if not contains_type(data_type, _TIMES):
            return expression
        if isinstance(data_type, ArrayType):
            return f"transform({expression}, x -> {self.value('x', data_type.elementType)})"
        if isinstance(data_type, MapType):
            return f"transform_values({expression}, (k, x) -> {self.value('x', data_type.valueType)})"
        if isinstance(data_type, StructType):
            members = ", ".join(f"{quote_literal(n)}, {self.value(e, t)}" for n, e, t in _members(expression, data_type))
            return f"CASE WHEN {expression} IS NOT NULL THEN named_struct({members}) END"
        return self._time(expression, data_type)

    def text(self, expression: str, data_type: DataType) -> str:
        """SQL expression of the JSON text of a number, boolean, timestamp, or nested value with a spliced type. NULL for NULL."""
        if isinstance(data_type, DecimalType):
            return f"try_cast({expression} AS STRING)" if self.plain_decimals else decimal_text(expression, data_type)
        if isinstance(data_type, _TIMES):
            return f"concat('\"', {self._time(expression, data_type)}, '\"')"
        if isinstance(data_type, (FloatType, DoubleType)):
            number = f"CAST({expression} AS STRING)"
            return f"if(isnan({expression}) OR abs({expression}) = double('Infinity'), concat('\"', {number}, '\"'), {number})"
        if isinstance(data_type, ArrayType):
            items = f"transform({expression}, x -> {_or_null(self.text('x', data_type.elementType))})"
            return f"concat('[', array_join({items}, ','), ']')"
        if isinstance(data_type, MapType):
            # to_json writes the key as the value of an object {"k": …}, from which `{"k":` and `}` are removed.
            label = f"regexp_extract({_as_flink_escapes(self.to_json([('k', 'k', StringType())]))}, '(?s)^.....(.*).$', 1)"
            entry = f"concat({label}, ':', {_or_null(self.text('x', data_type.valueType))})"
            entries = f"map_values(transform_values({expression}, (k, x) -> {entry}))"
            return f"concat('{{', array_join({entries}, ','), '}}')"
        if isinstance(data_type, StructType):
            return f"CASE WHEN {expression} IS NOT NULL THEN {self.object_text(_members(expression, data_type))} END"
        return f"CAST({expression} AS STRING)"

    def _time(self, expression: str, data_type: DataType) -> str:
        if isinstance(data_type, TimestampNTZType):
            return timestamp_ntz_text(expression, self.iso)
        if isinstance(data_type, TimestampType):
            return timestamp_text(expression, self.iso)
        return f"CAST({expression} AS STRING)"


def _runs(members: list[Member]) -> list[list[Member]]:
    """The members in runs: a run is encoded by one call of `to_json`, or consists of members that are spliced one by one.

    A call of `to_json` takes longer than a number in it. Numbers and timestamps between two members that need `to_json` are
    therefore encoded with them.
    """
    runs: list[list[Member]] = []
    for needs, group in groupby(members, key=lambda member: _needs_to_json(member[2])):
        run = list(group)
        between = len(runs) > 1 and needs and not any(contains_type(t, _SPLICED) for _, _, t in runs[-1])
        if between:
            numbers = runs.pop()
            runs[-1] += numbers + run
        else:
            runs.append(run)
    return runs


def _are_few_integers(members: list[Member]) -> bool:
    """Whether the object has few members and only integers, like most keys. Splicing them is faster than `to_json`."""
    integers = (ByteType, ShortType, IntegerType, LongType)
    return len(members) <= _FEW and all(isinstance(data_type, integers) for _, _, data_type in members)


def _needs_to_json(data_type: DataType) -> bool:
    nested = isinstance(data_type, (ArrayType, MapType, StructType))
    return isinstance(data_type, (StringType, BinaryType)) or (nested and not contains_type(data_type, _SPLICED))


def _has_text(data_type: DataType) -> bool:
    """Whether a value of the type contains strings. Keys of maps are strings."""
    if isinstance(data_type, ArrayType):
        return _has_text(data_type.elementType)
    if isinstance(data_type, StructType):
        return any(_has_text(f.dataType) for f in data_type.fields)
    return isinstance(data_type, (StringType, MapType))


def _names(member: Member) -> list[str]:
    """The name of the member and the names of the fields inside of it."""
    name, _, data_type = member
    if isinstance(data_type, ArrayType):
        return _names((name, "", data_type.elementType))
    if isinstance(data_type, MapType):
        return _names((name, "", data_type.valueType))
    if isinstance(data_type, StructType):
        return [name] + [inner for f in data_type.fields for inner in _names((f.name, "", f.dataType))]
    return [name]


def _members(expression: str, struct: StructType) -> list[Member]:
    return [(f.name, f"{expression}.{quote_identifier(f.name)}", f.dataType) for f in struct.fields]


def _or_null(text: str) -> str:
    return f"coalesce({text}, 'null')"


def _is_bmp(text: str) -> bool:
    return all(ord(c) <= 0xFFFF for c in text)


def _json_string(text: str) -> str:
    """The text as a JSON string, escaped like in Flink."""
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
    written = ""
    for c in text:
        if c in short:
            written += short[c]
        elif c < " " or not _is_bmp(c):
            units = c.encode("utf-16-be")
            written += "".join(f"\\u{units[i] << 8 | units[i + 1]:04X}" for i in range(0, len(units), 2))
        else:
            written += c
    return f'"{written}"'


def _has(text: str, part: bytes) -> str:
    # Searching bytes takes half the time of searching strings.
    return f"contains(CAST({text} AS BINARY), X'{part.hex()}')"


def _as_flink_escapes(text: str) -> str:
    """The same JSON with characters outside the BMP escaped and all others unescaped, as Flink writes it."""
    return f"get_json_object({text}, '$')"
