"""The types of option values: what each type accepts from Jinja, YAML and a pasted WITH clause.

A type converts a value to the Python value that the adapter uses, or raises ValueError with "must be …". `table` and
`format_table` define which option has which type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Any


@dataclass(frozen=True)
class ValueType:
    """The parser of a value, and a description of the allowed values for docs/options.md."""

    describe: str
    parse: Callable[[Any], Any]
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limit:
    """An upper limit: a count, or a percentage of a total."""

    count: int | None = None
    percent: float | None = None

    def allows(self, number: int, of: int) -> bool:
        """Whether `number` out of a total of `of` is within the limit."""
        if self.percent is not None:
            return number * 100 <= self.percent * of
        return self.count is None or number <= self.count

    def __str__(self) -> str:
        return f"{self.percent:g}%" if self.percent is not None else str(self.count)


_A_REFERENCE = "must be a list of references such as {name: shop.Address, subject: addresses, version: 1}"
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def _folded(name: str) -> str:
    return name.lower().replace("_", "-")


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a non-empty string")
    return value


def _any_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be a string")
    return value


def _sql(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a SQL expression")
    return value.strip()


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError("must be true or false")


def choice(*values: str, because: str = "", dotted: bool = False) -> ValueType:
    """One of `values`; case is ignored, as in Flink.

    Args:
        because: a reason that is added to the error message.
        dotted: also accept a dotted Python name.
    """
    folded = {_folded(v): v for v in values}

    def parse(value: Any) -> str:
        for known in values:
            if isinstance(value, str) and value.lower() == known.lower():
                return known
        if dotted and isinstance(value, str) and _DOTTED.fullmatch(value):
            return value
        near = get_close_matches(_folded(str(value)), folded, n=1, cutoff=0.5)
        hint = f"; did you mean '{folded[near[0]]}'?" if near else ""
        raise ValueError(f"must be one of {', '.join(values)}{because}{hint}")

    listed = ", ".join(values)
    return ValueType(f"{listed}, or a dotted name" if dotted else listed, parse, values)


def refused(why: str) -> ValueType:
    """An option of another system that can't be set here, whatever its value."""

    def parse(_: Any) -> None:
        raise ValueError(why)

    return ValueType("refused", parse)


def whole_number(least: int, most: int | None = None) -> ValueType:
    """A whole number within bounds. Accepts `'3'`, because WITH clauses contain only strings; refuses `3.0` and `true`."""
    bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"

    def parse(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip()):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
            raise ValueError(f"must be a whole number {bounds}")
        return value

    return ValueType(f"whole number {bounds}", parse)


def _limit(value: Any) -> Limit:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Limit(count=value)
    if isinstance(value, str):
        if re.fullmatch(r"\d+", value.strip()):
            return Limit(count=int(value))
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", value.strip())
        if match and float(match[1]) <= 100:
            return Limit(percent=float(match[1]))
    raise ValueError("must be a count such as 100 or a percentage from '0%' to '100%'")


_UNITS = {
    "d day days": timedelta(days=1),
    "h hour hours": timedelta(hours=1),
    "m min minute minutes": timedelta(minutes=1),
    "s sec secs second seconds": timedelta(seconds=1),
    "ms milli millis millisecond milliseconds": timedelta(milliseconds=1),
}
_DURATIONS = {name: length for names, length in _UNITS.items() for name in names.split()}


def _duration(value: Any) -> timedelta:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower()) if isinstance(text, str) else None
    unit = match[2] or "ms" if match else ""
    if not match or unit not in _DURATIONS:
        raise ValueError("must be a duration such as '10s', '5 min', '1 h' or '500 ms'")
    try:
        return int(match[1]) * _DURATIONS[unit]
    except OverflowError:
        raise ValueError("must be a duration of less than a billion days") from None


def _duration_map(value: Any) -> dict[str, timedelta]:
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ValueError("must be a map of one column to a duration, such as {viewtime: '2 seconds'}")
    [(column, duration)] = value.items()
    return {_text(column): _duration(duration)}


def _names(value: Any, what: str) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(n, str) and n.strip() for n in names):
        raise ValueError(f"must be a {what} name or a list of {what} names")
    return tuple(n.strip() for n in names)


def _columns(value: Any) -> tuple[str, ...]:
    names = _names(value, "column")
    twice = sorted({n for n in names if [m.lower() for m in names].count(n.lower()) > 1})
    if twice:
        raise ValueError(f"must name each column once; {', '.join(twice)} is repeated")
    return names


_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def _topics(value: Any) -> str:
    names = value.split(";") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
        raise ValueError("must be a topic name")
    names = [n.strip() for n in names]
    for name in names:
        if not _TOPIC.fullmatch(name) or name in (".", ".."):
            raise ValueError("must be a topic name of 1 to 249 letters, digits, '.', '_' or '-'")
    if len(set(names)) < len(names):
        raise ValueError("must name each topic once")
    return ";".join(names)


def _pattern(value: Any) -> str:
    text = _text(value)
    # Spark and Kafka use Java's syntax. Patterns with constructs that Python does not have can't be checked here.
    if not re.search(r"\\[pPQ]|&&", text):
        try:
            re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", text))
        except re.error as e:
            raise ValueError(f"must be a regular expression: {e}") from None
    return text


_SERVER = re.compile(r"(?:[A-Za-z_]+://)?(?:\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._%-]+):([0-9]{1,5})")


def _servers(value: Any) -> str:
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, list | tuple) and parts:
        stripped = [p.strip() if isinstance(p, str) else "" for p in parts]
        matches = [_SERVER.fullmatch(p) for p in stripped]
        if all(m and 0 < int(m[1]) < 65536 for m in matches):
            return ",".join(stripped)
    raise ValueError("must be host:port or a list host:port,host:port")


def _offsets(value: Any) -> dict[int, int]:
    wrong = ValueError("must look like 'partition:0,offset:42;partition:1,offset:300', with each partition once")
    if not isinstance(value, str):
        raise wrong
    offsets: dict[int, int] = {}
    for part in value.strip().strip(";").split(";"):
        match = re.fullmatch(r"\s*partition:(\d+)\s*,\s*offset:(\d+)\s*", part)
        if not match or int(match[1]) in offsets:
            raise wrong
        offsets[int(match[1])] = int(match[2])
    return offsets


def plain(value: Any) -> str:
    """A value in the notation of Kafka's properties: `true`, `12`, `a,b`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list | tuple) and value and all(isinstance(v, str | int | float) for v in value):
        return ",".join(plain(v) for v in value)
    raise ValueError("must be a string, a number, true, false or a list of these")


def _plain_map(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and k for k in value):
        raise ValueError("must be a map of names to values")
    result = {}
    for name, item in value.items():
        if item is not None:
            try:
                result[name] = plain(item)
            except ValueError as e:
                raise ValueError(f"must be a map of names to values; the value of '{name}' {e}") from None
    return result


def _sql_map(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and k for k in value):
        raise ValueError("must be a map of names to SQL expressions")
    for name, item in value.items():
        if not isinstance(item, str) or not item.strip():
            raise ValueError(f"must be a map of names to SQL expressions; the value of '{name}' is not a SQL expression")
    return {name: item.strip() for name, item in value.items()}


def _character(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1:
        raise ValueError("must be a single character")
    return value


def _delimiter(value: Any) -> str:
    """A single character. Accepts Java's escapes, because WITH clauses contain a tab as `\\t` or `\\u0009`."""
    text = value
    if isinstance(text, str) and len(text) > 1:
        text = {r"\t": "\t", r"\n": "\n", r"\r": "\r", r"\b": "\b", r"\f": "\f", "\\\\": "\\"}.get(text, text)
        text = re.sub(r"\\u([0-9A-Fa-f]{4})", lambda m: chr(int(m[1], 16)), text)
    return _character(text)


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _DOTTED.fullmatch(value):
        raise ValueError("must be the dotted name of a Python function, package.module.function")
    return value


def _url(value: Any) -> str:
    if not isinstance(value, str) or not all(re.fullmatch(r"https?://[^\s/,@]+(/\S*)?", u.strip()) for u in value.split(",")):
        raise ValueError("must be a URL that starts with http:// or https://, without user and password")
    return value


_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def _avro_schema(value: Any) -> str:
    """The schema as it was given, if fastavro can parse it."""
    # Here, because most models have no schema.
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    text = _text(value)
    try:
        # Filled by parse_schema with the record, enum and fixed types of the schema.
        named: dict[str, Any] = {}
        parse_schema(json.loads(text), named)
    except UnknownType:
        # `check` refuses it unless the type is one of schema_references.
        return text
    except SchemaParseException as e:
        problem = str(e)
    except KeyError as e:
        problem = f"{e} is missing"
    except TypeError:
        problem = "a part of it has the wrong JSON type"
    except RecursionError:
        problem = "it is nested too deeply"
    except ValueError as e:
        problem = f"it is not JSON, {e}"
    else:
        # fastavro accepts any text as a name. Spark and the schema registry don't.
        bad = next((name for name in named if not _AVRO_NAME.fullmatch(name)), None)
        if bad is None:
            return text
        problem = f"{bad!r} is not a name; use letters, digits and underscores"
    raise ValueError(f"must be an Avro schema: {' '.join(problem.split())[:200]}")


def unknown_avro_type(text: str) -> str | None:
    """The name of the first type that an Avro schema uses and does not define."""
    from fastavro.schema import UnknownType, parse_schema

    try:
        parse_schema(json.loads(text))
    except UnknownType as e:
        return str(e)
    return None


def _references(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(_A_REFERENCE)
    found = []
    for item in value:
        given = dict(item) if isinstance(item, Mapping) else {}
        version = str(given.get("version"))
        if set(given) != {"name", "subject", "version"} or not version.isdecimal() or int(version) < 1:
            raise ValueError(_A_REFERENCE)
        found.append({"name": _text(given["name"]), "subject": _text(given["subject"]), "version": int(version)})
    return found


def _json_schema(value: Any) -> str:
    """The schema as it was given, if it is a JSON object that describes an object."""
    text = _text(value)
    try:
        schema = json.loads(text)
    except ValueError as e:
        raise ValueError(f"must be a JSON Schema: it is not JSON, {e}") from None
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        raise ValueError('must be a JSON Schema of an object: {"type": "object", "properties": {…}}')
    return text


TEXT = ValueType("string", _text)
ANY_TEXT = ValueType("string", _any_text)
AVRO_SCHEMA = ValueType("Avro schema (JSON)", _avro_schema)
JSON_SCHEMA = ValueType("JSON Schema", _json_schema)
REFERENCES = ValueType("list of `{name, subject, version}`", _references)
SQL = ValueType("SQL expression", _sql)
BOOLEAN = ValueType("true, false", _boolean)
LIMIT = ValueType("count or percentage", _limit)
DURATION = ValueType("duration such as `10s`, `5 min`", _duration)
DURATION_MAP = ValueType("map of a column to a duration, such as `{viewtime: 2 seconds}`", _duration_map)
COLUMNS = ValueType("column or list of columns", _columns)
MODELS = ValueType("model or list of models", lambda value: _names(value, "model"))
TOPIC = ValueType("topic name", _topics)
PATTERN = ValueType("regular expression", _pattern)
SERVERS = ValueType("host:port list", _servers)
OFFSETS = ValueType("`partition:0,offset:42;partition:1,offset:300`", _offsets)
PLAIN_MAP = ValueType("map of names to values", _plain_map)
SQL_MAP = ValueType("map of names to SQL expressions", _sql_map)
CHARACTER = ValueType("single character", _character)
DELIMITER = ValueType("single character, or an escape such as `\\t`, `\\u0001`", _delimiter)
FUNCTION = ValueType("package.module.function", _name)
URL = ValueType("URL", _url)
