"""Hypothesis strategies for schemas and rows that a format supports."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
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

TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\uffff") | st.sampled_from("🎉\"\\,;\n\r\t\0 '`${}中"), max_size=30
)
"""Any characters; those with a meaning in some format are drawn more often."""
ANY_NAME = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=8).filter(
    lambda name: "${" not in name
)
AVRO_NAME = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,7}", fullmatch=True)
_WIDTHS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_EXACT = Context(prec=80)
# Spark and Python's datetime use the same calendar between these.
_FIRST, _LAST = datetime(1900, 1, 1), datetime(2200, 1, 1)


def data_types(format_name: str, depth: int = 2) -> st.SearchStrategy[DataType]:
    """A type that the format supports."""
    scalars = [BooleanType(), ByteType(), ShortType(), IntegerType(), LongType(), FloatType(), DoubleType(), StringType()]
    scalars += [BinaryType(), DateType(), TimestampNTZType(), TimestampType()]
    decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s)))
    flat: st.SearchStrategy[DataType] = st.sampled_from(scalars) | decimals
    if depth == 0 or (format_name == "csv" and depth == 1):
        return flat
    inner = data_types(format_name, depth - 1)
    nested = [st.builds(ArrayType, inner), structs(format_name, inner, 1)]
    if format_name != "csv":
        nested.append(inner.map(lambda t: MapType(StringType(), t)))
    return st.one_of(flat, flat, *nested)


def structs(format_name: str, types: st.SearchStrategy[DataType], least: int) -> st.SearchStrategy[StructType]:
    names = AVRO_NAME if format_name.startswith("avro") else ANY_NAME
    unique = st.lists(names, min_size=least, max_size=5, unique_by=str.lower)
    return unique.flatmap(lambda ns: st.tuples(*[types for _ in ns]).map(lambda ts: StructType(list(map(StructField, ns, ts)))))


def values(data_type: DataType, format_name: str, key: bool = False) -> st.SearchStrategy[Any]:
    """A value of the type, or None, without values that csv can't distinguish (see formats/csv.py)."""
    csv = format_name == "csv"
    if isinstance(data_type, ArrayType):
        elements = st.lists(values(data_type.elementType, format_name), min_size=2 if csv else 0, max_size=4)
        found: st.SearchStrategy[Any] = elements
    elif isinstance(data_type, MapType):
        found = st.dictionaries(TEXT, values(data_type.valueType, format_name), max_size=3)
    elif isinstance(data_type, StructType):
        found = st.tuples(*[values(f.dataType, format_name) for f in data_type.fields])
        if csv:
            found = found.filter(lambda members: len(members) > 1)
    else:
        found = _scalars(data_type, csv)
    return found if key else st.none() | found


def _scalars(data_type: DataType, csv: bool) -> st.SearchStrategy[Any]:
    if type(data_type) in _WIDTHS:
        limit = 2 ** (_WIDTHS[type(data_type)] - 1)
        return st.integers(-limit, limit - 1)
    if isinstance(data_type, DecimalType):
        scale = data_type.scale
        return st.integers(-(10**data_type.precision) + 1, 10**data_type.precision - 1).map(
            lambda i: Decimal(i).scaleb(-scale, _EXACT)
        )
    if isinstance(data_type, (FloatType, DoubleType)):
        return st.floats(width=32 if isinstance(data_type, FloatType) else 64, allow_nan=False)
    if isinstance(data_type, StringType):
        return TEXT.filter(lambda text: text != "" and ";" not in text) if csv else TEXT
    if isinstance(data_type, BinaryType):
        return st.binary(min_size=1 if csv else 0, max_size=30)
    if isinstance(data_type, DateType):
        return st.dates(date(1, 1, 1), date(9999, 12, 31))
    if isinstance(data_type, TimestampNTZType):
        return st.datetimes(_FIRST, _LAST).map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000))
    if isinstance(data_type, TimestampType):
        return st.datetimes(_FIRST, _LAST, timezones=st.just(UTC))
    return st.booleans()
