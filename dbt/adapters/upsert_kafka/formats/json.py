"""Format `json`: one object per record, the bytes of Flink's json format.

Spark's `to_json` writes what it writes as Flink does. Decimals, which Flink writes without trailing zeros and with exponents, are
spliced between its pieces as text, and times are text before it sees them. Characters beyond the BMP, which Flink escapes and
`to_json` does not, are left to a second writer where there are any. NaN and the infinities are the strings "NaN", "Infinity" and
"-Infinity", as in Flink. Spark's maps have no null keys, so `map_null_key_mode` and `map_null_key_literal` never come into play.
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

# Late Hangul begins like a surrogate, which is no harm.
ESCAPE, SURROGATE = rb"\u", rb"\uD"
CORRUPT = "__upsert_kafka_corrupt"
_LEADS_BEYOND_BMP = [bytes([lead]) for lead in range(0xF0, 0xF5)]
"""First bytes of four in UTF-8; they stand nowhere else."""
_FIRST_BEYOND_ASCII = "\x80"
_SAMPLES = 3
_FEW = 3
_TIMES = (DateType, TimestampNTZType, TimestampType)
_SPLICED = (DecimalType, FloatType)
"""Written as text between the pieces of `to_json`: the second writer would make doubles of floats, with more digits."""
# Bytes are cut at once, characters would be counted.
_INSIDE = "CAST(substring(CAST({0} AS BINARY), 2, octet_length({0}) - 2) AS STRING)"
Member = tuple[str, str, DataType]
"""Name, expression, type."""


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

    def checked(self, side: Side, payload: str, parsed: str) -> str:
        columns = {f.column: f"{parsed}.{quote_identifier(f.name)}" for f in side.fields}
        # from_json gives NULL for an empty string
        readable = f"{parsed} IS NOT NULL AND {parsed}.{CORRUPT} IS NULL"
        if side.options.get("fail_on_missing_field"):
            names = ", ".join(quote_literal(f.name) for f in side.fields)
            readable += f" AND size(array_except(array({names}), json_object_keys(CAST({payload} AS STRING)))) = 0"
        return checked_struct(self.name, side, payload, columns, readable)


def object_bytes(side: Side, members: list[Member]) -> str:
    """The bytes of an object with these members, by the side's options."""
    return f"CAST({_Writer(side).object_text(members)} AS BINARY)"


def refusal(data_type: DataType) -> str | None:
    """Why JSON can't carry the type."""
    if isinstance(data_type, MapType) and not isinstance(data_type.keyType, StringType):
        return "a JSON object has string keys: turn the map's keys into strings (transform_keys), or use an array of structs"
    return None


class _Writer:
    """The expressions of JSON text, for one side's options."""

    def __init__(self, side: Side) -> None:
        self.iso = side.options.get("timestamp_format_standard", "SQL") == "ISO-8601"
        self.plain_decimals = bool(side.options.get("encode_decimal_as_plain_number", False))
        self.ignore_nulls = bool(side.options.get("encode_ignore_null_fields", False))

    def object_text(self, members: list[Member]) -> str:
        """JSON text of an object with these members."""
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
        """JSON text of an object with the members, whose types hold nothing that is spliced."""
        names = [name for member in members for name in _names(member)]
        if all(map(str.isascii, names)) and not any(_has_text(t) for _, _, t in members):
            return self.to_json(members)
        # With all but ASCII escaped, one look tells whether there is anything to take care of: mostly there is not. Text in
        # other scripts has its first letter beyond ASCII; it is written as it is, which takes five looks but no second writing.
        ascii_only, plain = self.to_json(members, writeNonAsciiCharacterAsCodePoint="true"), self.to_json(members)
        samples = [expression for _, expression, data_type in members if isinstance(data_type, StringType)][:_SAMPLES]
        if not samples:
            with_care = f"if({_has(ascii_only, SURROGATE)}, {_as_flink_escapes(ascii_only)}, {plain})"
            return f"if({_has(ascii_only, ESCAPE)}, {with_care}, {ascii_only})"
        # As one condition, Spark evaluates once what stands in it.
        greatest = samples[0] if len(samples) == 1 else f"greatest({', '.join(samples)})"
        other_script = f"coalesce({greatest} >= '{_FIRST_BEYOND_ASCII}', false)"
        written = f"if({other_script}, {plain}, {ascii_only})"
        has_more = " OR ".join(_has(written, lead) for lead in _LEADS_BEYOND_BMP)
        needs_care = f"if({other_script}, {has_more}, {_has(written, ESCAPE)})"
        escaped = f"if({other_script} OR {_has(written, SURROGATE)}, {_as_flink_escapes(written)}, {plain})"
        return f"if({needs_care}, {escaped}, {written})"

    def to_json(self, members: list[Member], **more: str) -> str:
        struct = "named_struct(" + ", ".join(f"{quote_literal(n)}, {self.value(e, t)}" for n, e, t in members) + ")"
        return f"to_json({struct}, {quote_map({'ignoreNullFields': str(self.ignore_nulls).lower(), **more})})"

    def value(self, expression: str, data_type: DataType) -> str:
        """The expression, turned into one that `to_json` writes as Flink does; the type holds nothing that is spliced."""
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
        """JSON text of a number, a boolean, a time, or a nested value that holds something spliced; NULL for NULL."""
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
            # The key is written where a value would be, and `{"k":` and `}` cut off.
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
    """The members in runs that `to_json` writes and runs of those that are text already.

    A call of `to_json` costs more than a number in it: numbers and times between two members that need it go with them.
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
    """Such as most keys: written one by one in less time than by `to_json`."""
    integers = (ByteType, ShortType, IntegerType, LongType)
    return len(members) <= _FEW and all(isinstance(data_type, integers) for _, _, data_type in members)


def _needs_to_json(data_type: DataType) -> bool:
    nested = isinstance(data_type, (ArrayType, MapType, StructType))
    return isinstance(data_type, (StringType, BinaryType)) or (nested and not contains_type(data_type, _SPLICED))


def _has_text(data_type: DataType) -> bool:
    """Whether there is text in the value; keys of maps are."""
    if isinstance(data_type, ArrayType):
        return _has_text(data_type.elementType)
    if isinstance(data_type, StructType):
        return any(_has_text(f.dataType) for f in data_type.fields)
    return isinstance(data_type, (StringType, MapType))


def _names(member: Member) -> list[str]:
    """The member's name and those inside of it."""
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
    """The text as Flink's writer of JSON writes a string."""
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
    # Spark finds bytes in bytes in half the time that it takes to find a text in a text.
    return f"contains(CAST({text} AS BINARY), X'{part.hex()}')"


def _as_flink_escapes(text: str) -> str:
    """The same JSON with what is beyond the BMP escaped and the rest not: Spark reads it and writes it with Flink's writer."""
    return f"get_json_object({text}, '$')"
