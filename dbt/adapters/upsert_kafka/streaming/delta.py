"""A Delta table that a model reads through `stream()`: the rows that are in it, and those that are appended later.

The position in the table is in Spark's checkpoint and in the state record, which is bound to the id of the table. Leaves reading
to Delta Lake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import catalog
from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError, UpsertKafkaError
from dbt.adapters.upsert_kafka.options import values
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.spark import table_formats
from dbt.adapters.upsert_kafka.spark.failures import first_line
from dbt.adapters.upsert_kafka.streaming.sources import view_name
from dbt.adapters.upsert_kafka.streaming.watermarks import with_watermark

WATERMARK, SKIP = "watermark", "skip_change_commits"
ONE_BATCH = 2**31 - 1
STATIC = "Read it as a static table with ref() or source()"
_CODE = re.compile(r"\[(DELTA_[A-Z_]+|DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE)(?:\.\w+)?\]")
_VERSION = re.compile(r"at version (\d+)")
_CHANGED = ("DELTA_SOURCE_IGNORE_DELETE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES")


@dataclass(frozen=True)
class DeltaTable:
    """A relation that is read as a stream although it is no topic: it must be a Delta table."""

    relation: UpsertKafkaRelation
    watermark: Mapping[str, timedelta] = field(default_factory=dict)
    skips_changes: bool = False
    """Whether commits of the table that update or delete rows are ignored."""

    @property
    def name(self) -> str:
        return f"{self.relation.schema}.{self.relation.identifier}"

    @property
    def view(self) -> str:
        """The name of the streaming view in the compiled SQL of the model."""
        return view_name(self.relation)

    def text(self) -> str:
        """What the rows of the stream depend on, apart from the table itself."""
        return repr(sorted(self.watermark.items()))

    def id(self, spark: SparkSession) -> str:
        """The id of the table: a table that was dropped and created again has another."""
        return str(spark.sql(f"DESCRIBE DETAIL {catalog.name(self.relation)}").collect()[0]["id"])


def of_node(model: str, relation: UpsertKafkaRelation, node: Mapping[str, Any]) -> DeltaTable:
    """The Delta table of a source or a model of the project, with the settings in its `meta`.

    Raises:
        OptionsError: a setting is wrong.
    """
    meta = node.get("config", {}).get("meta") or node.get("meta") or {}
    given, skips = meta.get(WATERMARK), meta.get(SKIP, False)
    try:
        watermark = values.DURATION_MAP.parse(given) if given else {}
    except ValueError as error:
        raise OptionsError(f"model {model}: {WATERMARK} in the meta of {node['name']} {error}, not {given!r}") from None
    if not isinstance(skips, bool):
        raise OptionsError(f"model {model}: {SKIP} in the meta of {node['name']} must be true or false, not {skips!r}")
    return DeltaTable(relation, watermark, skips)


def problem(spark: SparkSession, table: DeltaTable) -> str | None:
    """Why a relation can't be read as a stream; None if it can."""
    try:
        described = spark.sql(f"DESCRIBE TABLE EXTENDED {catalog.name(table.relation)}").collect()
    except PySparkException as error:
        return f"stream() can't read {table.name}: {(table_formats.explain(error) or first_line(error)).rstrip('.')}"
    found = {row["col_name"].lower(): row["data_type"] for row in described}
    kind = "view" if found.get("type") == "VIEW" else f"table of format {found.get('provider', 'unknown')}"
    if str(found.get("provider")).lower() == "delta":
        return None
    return (
        f"stream() reads a kafka_source, a kafka model that appends or a Delta table, and {table.name} is a {kind}. {STATIC}, or "
        "store it as a Delta table"
    )


def create_view(spark: SparkSession, table: DeltaTable) -> DataFrame:
    """Create the streaming view."""
    reader = spark.readStream.option("skipChangeCommits", str(table.skips_changes).lower())
    if table.watermark:
        # Delta returns the first rows in no order. In several batches, those of later batches would be dropped as late.
        reader = reader.option("maxFilesPerTrigger", ONE_BATCH)
    rows = with_watermark(reader.table(catalog.name(table.relation)), table.watermark, f"Delta table {table.name}")
    rows.createOrReplaceTempView(table.view)
    return rows


def failure(model: str, tables: Sequence[DeltaTable], text: str, start_over: str) -> UpsertKafkaError | None:
    """The error of a stream that Delta Lake has ended, in one line; None if it was something else. A GuardError if the next start
    would fail too.

    Args:
        text: Spark's error.
        start_over: the remedy.
    """
    codes = {found[1] for found in _CODE.finditer(text)} if tables else set()
    if not codes:
        return None
    names = ", ".join(table.name for table in tables)
    found = _VERSION.search(text)
    version = f" in version {found[1]}" if found else ""
    if any(code.startswith("DELTA_SCHEMA_CHANGED") for code in codes):
        return UpsertKafkaError(
            f"model {model}: the columns of the Delta table {names} changed{version}. The batch was not written. Run it again. "
            f"If it fails again: {start_over}"
        )
    if codes.intersection(_CHANGED):
        reason = (
            f"rows of the Delta table {names} were updated or deleted{version}, and a stream reads appended rows only. "
            f"{start_over} To ignore such commits, set {SKIP}: true in the meta of the source."
        )
    else:
        reason = f"the Delta table {names} can't be read on ({', '.join(sorted(codes))}). {start_over}"
    return GuardError(f"model {model}: {reason} The batch was not written.")
