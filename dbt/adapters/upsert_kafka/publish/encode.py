"""Step encode: how the columns of a SELECT become keys and values, checked before anything else happens.

Leaves to `formats.records` the layout itself.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from dbt.adapters.upsert_kafka.catalog import reading, views
from dbt.adapters.upsert_kafka.errors import GuardError, IncompatibleSchemaError, OptionsError
from dbt.adapters.upsert_kafka.formats import records
from dbt.adapters.upsert_kafka.formats.records import Records
from dbt.adapters.upsert_kafka.options import ModelOptions, check_columns
from dbt.adapters.upsert_kafka.options.table import KAFKA
from dbt.adapters.upsert_kafka.publish import expose
from dbt.adapters.upsert_kafka.publish.request import Request


def layout_of(rows: DataFrame, request: Request) -> Records:
    """How the rows become records. Asks the schema registry, and registers schemas if the run publishes.

    A preview goes on with a schema that the registry refuses, see `check_schemas`.
    """
    layout = checked_layout(rows, request.model, request.options, request.topic)
    layout = layout.prepared(request.registry, writes=request.mode == "publish")
    if layout.schema_refusal and request.mode != "preview":
        raise IncompatibleSchemaError(layout.schema_refusal)
    if problem := views.length_problem(rows.sparkSession, expose.view_query(layout, request)):
        raise OptionsError(f"model {request.model}: {problem}")
    return layout


def check_schemas(layout: Records, model: str) -> None:
    """Refuse schemas that the registry refuses."""
    if layout.schema_refusal:
        raise GuardError(f"model {model}: {layout.schema_refusal}")


def checked_layout(rows: DataFrame, model: str, options: ModelOptions, topic: str) -> Records:
    """How the rows become records, if the formats support their types. Uses no network."""
    check_columns(options, model, rows.columns)
    layout = records.layout(options, topic, rows.schema)
    problems = layout.problems() + records.expression_problems(options, rows) + _metadata_problems(layout, options)
    if problems:
        raise OptionsError("\n".join(f"model {model}: {problem}" for problem in problems))
    return layout


def _metadata_problems(layout: Records, options: ModelOptions) -> list[str]:
    """Columns that the relation of a `kafka` model has besides those of the SELECT, as `SELECT *` of a kafka_source has them."""
    found = (
        [column for column in layout.columns if column.lower() in reading.METADATA] if options.materialization == KAFKA else []
    )
    if not found:
        return []
    return [f"the relation has the metadata column {', '.join(found)} itself; rename it, or list it in exclude_columns"]
