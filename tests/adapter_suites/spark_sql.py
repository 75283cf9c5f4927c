"""Translates the SQL of dbt's suites from Postgres to Spark: types, quoted names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

Files = TypeVar("Files", bound=Mapping[str, str])


def in_spark_sql(text: str) -> str:
    """Translate SQL, or a file that contains SQL."""
    text = re.sub(r"\btimestamp without time zone\b", "timestamp", text, flags=re.IGNORECASE)
    text = re.sub(r"(?<![\w'])text(?![\w'(:])", "string", text, flags=re.IGNORECASE)
    return re.sub(r'"(\w+)"', r"`\1`", text)


def files(given: Mapping[str, str]) -> dict[str, str]:
    """Translate the files of a suite."""
    return {name: in_spark_sql(text) for name, text in given.items()}


def without_database(text: str) -> str:
    """Remove the database from names. Spark has one database, which dbt-spark calls None."""
    return re.sub(r"(\{database\}|\{\{ ?target\.database ?\}\}|\bNone)\.", "", text)
