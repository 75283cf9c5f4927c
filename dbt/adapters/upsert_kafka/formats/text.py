"""Values as the text that Flink's text formats write: timestamps, and decimals in Java's shortest notation.

Every expression gives the same text under any session time zone and ANSI setting.
"""

from __future__ import annotations

from pyspark.sql.types import DecimalType

from dbt.adapters.upsert_kafka.sql import let


def timestamp_ntz_text(expression: str, iso: bool) -> str:
    """`2024-02-29 12:34:56.12` (with a `T` if `iso`), without trailing zeros of the fraction."""
    text = f"CAST({expression} AS STRING)"
    return f"replace({text}, ' ', 'T')" if iso else text


def timestamp_text(expression: str, iso: bool) -> str:
    """The instant in UTC, with a `Z` at the end."""
    # A cast to TIMESTAMP_NTZ or a difference of timestamps would go through the session's time zone.
    utc = f"TIMESTAMP_NTZ '1970-01-01 00:00:00' + INTERVAL '0.000001' SECOND * unix_micros({expression})"
    return f"concat({timestamp_ntz_text(f'({utc})', iso)}, 'Z')"


def decimal_text(expression: str, data_type: DecimalType) -> str:
    """Java's `stripTrailingZeros().toString()`: `1.5`, `1E+2`, `1.2E-7`."""
    # CAST gives exponents without ANSI and none with it; try_cast never does.
    plain = f"try_cast({expression} AS STRING)"
    if data_type.scale > 0:
        plain = f"trim(TRAILING '.' FROM trim(TRAILING '0' FROM {plain}))"
    digits = "trim(TRAILING '0' FROM t)"
    large = (
        f"concat(regexp_replace({digits}, '^(-?\\\\d)(\\\\d+)$', '$1.$2'), 'E+', "
        "CAST(char_length(t) - if(t LIKE '-%', 2, 1) AS STRING))"
    )
    fraction = "regexp_replace(t, '^-?0\\\\.0+', '')"
    small = (
        f"concat(if(t LIKE '-%', '-', ''), regexp_replace({fraction}, '^(.)(.+)$', '$1.$2'), 'E-', "
        f"CAST(char_length(t) - char_length({fraction}) - if(t LIKE '-%', 2, 1) AS STRING))"
    )
    cases = f"WHEN t = '0' THEN t WHEN t LIKE '%0' AND NOT contains(t, '.') THEN {large}"
    if data_type.scale > 6:
        cases += f" WHEN t LIKE '0.000000%' OR t LIKE '-0.000000%' THEN {small}"
    return let("t", plain, f"CASE {cases} ELSE t END")
