"""What dbt's suites write for Postgres, in Spark's spelling: types, quoted names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

Files = TypeVar("Files", bound=Mapping[str, str])


def in_spark_sql(text: str) -> str:
    """SQL, or a file with SQL in it."""
    text = re.sub(r"\btimestamp without time zone\b", "timestamp", text, flags=re.IGNORECASE)
    text = re.sub(r"(?<![\w'])text(?![\w'(:])", "string", text, flags=re.IGNORECASE)
    return re.sub(r'"(\w+)"', r"`\1`", text)


def files(given: Mapping[str, str]) -> dict[str, str]:
    """The files of a suite, each in Spark's spelling."""
    return {name: in_spark_sql(text) for name, text in given.items()}


def without_database(text: str) -> str:
    """The same names without a database, of which Spark has one and dbt-spark calls it None."""
    return re.sub(r"(\{database\}|\{\{ ?target\.database ?\}\}|\bNone)\.", "", text)
