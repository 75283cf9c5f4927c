"""The watermark of a stream: how late its events may come."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType, TimestampType

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.sql import quote_identifier


def with_watermark(rows: DataFrame, watermark: Mapping[str, timedelta], source: str) -> DataFrame:
    """The rows with a watermark. A column of type timestamp_ntz is cast, because Spark refuses it.

    Args:
        source: what the rows are read from, for messages.
    """
    for column, delay in watermark.items():
        field = next((field for field in rows.schema.fields if field.name.lower() == column.lower()), None)
        if field is None:
            raise OptionsError(f"watermark: the {source} has no column {column}, its columns are {', '.join(rows.columns)}")
        if isinstance(field.dataType, TimestampNTZType):
            rows = rows.withColumn(field.name, F.col(quote_identifier(field.name)).cast(TimestampType()))
        elif not isinstance(field.dataType, TimestampType):
            raise OptionsError(
                f"watermark: column {column} of the {source} has type {field.dataType.simpleString()}; it must be a timestamp"
            )
        rows = rows.withWatermark(field.name, f"{int(delay.total_seconds() * 1000)} milliseconds")
    return rows
