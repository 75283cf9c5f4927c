"""Encodes rows with a format and decodes payloads, with Spark and without Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.formats import Field, Side
from dbt.adapters.upsert_kafka.sql import quote_identifier

SETTINGS = [("UTC", "true"), ("America/New_York", "false"), ("Asia/Kathmandu", "true")]
"""Session time zones and ANSI modes. None of them may change the result of a format."""


def side_of(frame: DataFrame, required: Iterable[str] = (), **options: Any) -> Side:
    """All columns of the frame as a value. `required` columns are not nullable."""
    fields = tuple(Field(f.name, f.name, f.dataType, f.name not in set(required)) for f in frame.schema.fields)
    return Side("value", "orders", fields, options)


def write(frame: DataFrame, format_name: str, side: Side) -> list[bytes]:
    """The encoded rows."""
    format = formats.get(format_name)
    assert format.problems(side) == []
    return [bytes(row[0]) for row in frame.selectExpr(format.encode(side)).collect()]


def texts(spark: SparkSession, sql: str, format_name: str, **options: Any) -> list[str]:
    """The encoded rows of a query as text."""
    frame = spark.sql(sql)
    return [payload.decode() for payload in write(frame, format_name, side_of(frame, **options))]


def read(spark: SparkSession, payloads: Iterable[bytes], format_name: str, side: Side) -> DataFrame:
    """The decoded payloads, one row each."""
    values = ", ".join(f"(X'{payload.hex()}')" for payload in payloads)
    decoded = spark.sql(f"SELECT {formats.get(format_name).decode(side, 'payload')} AS d FROM VALUES {values} AS t(payload)")
    return decoded.select(*[f"d.{quote_identifier(f.column)}" for f in side.fields])


@contextmanager
def settings(spark: SparkSession, time_zone: str, ansi: str) -> Iterator[None]:
    """Change the session time zone and the ANSI mode for a block."""
    wanted = {"spark.sql.session.timeZone": time_zone, "spark.sql.ansi.enabled": ansi}
    before = {name: str(spark.conf.get(name)) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
