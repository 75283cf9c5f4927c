"""Timestamps and decimals as the text that Flink's csv and json formats write.

The expressions return the same text under any session time zone and ANSI setting. They contain no lambda functions: a lambda,
even in a branch that is not taken, excludes the projection from whole-stage code generation.
"""

from __future__ import annotations

from pyspark.sql.types import DecimalType

_LONGEST_FRACTION = 6
"""Java writes values below 0.000001 with an exponent."""


def timestamp_ntz_text(expression: str, iso: bool) -> str:
    """`2024-02-29 12:34:56.12` (with a `T` if `iso`), without trailing zeros in the fraction."""
    text = f"CAST({expression} AS STRING)"
    return f"replace({text}, ' ', 'T')" if iso else text


def timestamp_text(expression: str, iso: bool) -> str:
    """The timestamp in UTC, with a `Z` at the end."""
    # A cast to TIMESTAMP_NTZ or a difference of timestamps would use the session time zone.
    utc = f"TIMESTAMP_NTZ '1970-01-01 00:00:00' + INTERVAL '0.000001' SECOND * unix_micros({expression})"
    return f"concat({timestamp_ntz_text(f'({utc})', iso)}, 'Z')"


def decimal_text(expression: str, data_type: DecimalType) -> str:
    """Java's `stripTrailingZeros().toString()`: `1.5`, `1E+2`, `1.2E-7`."""
    # CAST returns exponents if ANSI is disabled. try_cast never does.
    plain = f"try_cast({expression} AS STRING)"
    scale = data_type.scale
    zero = "0." + "0" * scale if scale else "0"
    if scale > _LONGEST_FRACTION:
        stripped = f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM {plain}))"
    elif scale:
        # Cutting off bytes is much faster than trimming, which inspects every character.
        cuts = [f"WHEN endswith({plain}, '{'0' * zeros}') THEN {zeros}" for zeros in range(scale - 1, 0, -1)]
        cut = f"CASE WHEN endswith({plain}, '{zero[1:]}') THEN {len(zero) - 1} {' '.join(cuts)} END"
        stripped = f"CAST(substring(CAST({plain} AS BINARY), 1, octet_length({plain}) - {cut}) AS STRING)"
    else:
        stripped = plain
    multiple_of_ten = f"endswith({plain}, '{zero}') AND {plain} != '{zero}'"
    # The second condition is always true. Spark evaluates a subexpression once if it occurs twice outside of branches.
    ends_with_zero = f"CAST(endswith({plain}, '0') AS INT) & CAST(octet_length({plain}) > 0 AS INT) = 1"
    text = f"CASE WHEN NOT {ends_with_zero} THEN {plain} WHEN {multiple_of_ten} THEN {_large(plain, scale)} ELSE {stripped} END"
    if scale > _LONGEST_FRACTION:
        # Not abs(): in Spark it rounds a negative decimal to 34 digits, and then fails if the result does not fit the type.
        limit = f"1E-{_LONGEST_FRACTION}BD"
        tiny = f"{expression} > -{limit} AND {expression} < {limit} AND {expression} != 0"
        text = f"if({tiny}, {_small(plain)}, {text})"
    return text


def _large(plain: str, scale: int) -> str:
    """A multiple of ten: `12000.00` becomes `1.2E+4`."""
    mantissa = f"trim(TRAILING '.' FROM regexp_replace({plain}, '^(-?\\\\d)(\\\\d*?)0+(\\\\.0*)?$', '$1.$2'))"
    exponent = f"octet_length({plain}) - {scale + 2 if scale else 1} - if(startswith({plain}, '-'), 1, 0)"
    return f"concat({mantissa}, 'E+', CAST({exponent} AS STRING))"


def _small(plain: str) -> str:
    """A small value: `0.00000012` becomes `1.2E-7`."""
    digits = f"regexp_replace({plain}, '^-?0\\\\.0+|0+$', '')"
    mantissa = f"regexp_replace({digits}, '^(.)(.+)$', '$1.$2')"
    exponent = f"octet_length(regexp_replace({plain}, '^-?0\\\\.(0+).*$', '$1')) + 1"
    return f"concat(if(startswith({plain}, '-'), '-', ''), {mantissa}, 'E-', CAST({exponent} AS STRING))"
