"""What can be a stream: checks the plan of a SELECT before anything starts, and how its rows are updated.

Spark refuses some plans itself, and accepts others that leave old values in the topic. Each refusal names the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.spark.failures import first_line
from dbt.adapters.upsert_kafka.spark.internals import PlanNode, check_streaming_plan, optimized_plan, with_deduplication

OutputMode = Literal["Update", "Append"]
ORDER = ("kafka_partition", "kafka_offset")
"""The metadata columns of a kafka_source that order the rows of a batch."""

# Parts of Spark's messages, each with what to do instead.
REMEDIES = {
    "Distinct aggregations": "COUNT(DISTINCT …) can't be computed by a stream; write {{ count_distinct('column') }} instead",
    "Sorting is not supported": "ORDER BY can't be computed by a stream, and a topic has no order of keys; remove it",
    "Limits are not supported": "LIMIT can't be computed by a stream; remove it",
    "NON_TIME_WINDOW": "window functions such as row_number() can't be computed by a stream; group the rows, or use sequence_by",
    "INVALID_SUBQUERY_EXPRESSION": "a stream can't be read in a subquery expression such as IN (SELECT …); use a join",
    "without watermark": "this aggregate needs a watermark on the kafka_source: watermark: {column: '10 minutes'}",
}
DROPPING_ROWS = {
    "Filter": "a filter above an aggregate (HAVING) leaves the old value of a group that no longer matches in the topic; select "
    "all groups and delete those with delete_when",
    "Join": "a join above an aggregate leaves the old value of a group that no longer matches in the topic; use a LEFT JOIN, or "
    "join before the aggregate",
    "Generate": "explode above an aggregate leaves old rows of a group in the topic; explode before the aggregate",
}
NOT_FINAL = (
    "a kafka model appends a row when it is final, so its aggregate must group by a time window or column that has a watermark "
    "on the kafka_source (watermark: {column: '10 minutes'}); to publish each change of a group, set materialized='upsert_kafka'"
)
GLOBAL_SESSION = "a session window of all events can't be computed by a stream; add a column of the events to GROUP BY"
LIMITS = ("GlobalLimit", "LocalLimit", "Offset")
STATEFUL = ("Aggregate", "Deduplicate", "DeduplicateWithinWatermark")


@dataclass(frozen=True)
class StreamPlan:
    """A SELECT that can be a stream."""

    rows: DataFrame
    output_mode: OutputMode
    is_stateless: bool
    """Whether a batch depends on its own events only."""
    is_unique: bool
    """Whether a batch has each key at most once, because the rows are grouped by the key."""
    order: Column | None
    """What tells the last row of a key in a batch; None if the rows are grouped by the key, or if `sequence_by` does."""


def checked(model: str, rows: DataFrame, options: ModelOptions) -> StreamPlan:
    """Check a SELECT.

    Raises:
        OptionsError: the SELECT can't be a stream, with the remedy.
    """
    if not rows.isStreaming:
        raise _error(model, "the SELECT does not read the stream; select from {{ stream(ref('…')) }}")
    if options.appends:
        return _appending(model, rows)
    plan = optimized_plan(rows)
    nodes = _nodes(model, plan)
    joins_streams = _joins_streams(nodes)
    aggregate = next((node for node in nodes if node.name == "Aggregate"), None)
    is_session = _is_session(model, aggregate)
    output_mode: OutputMode = "Append" if joins_streams or is_session else "Update"
    try:
        check_streaming_plan(rows, output_mode)
    except PySparkException as error:
        raise _error(model, _remedy(error)) from None
    if aggregate is None or joins_streams:
        is_stateless = not joins_streams and not any(node.name in STATEFUL for node in nodes)
        return StreamPlan(rows, output_mode, is_stateless, False, _order(model, rows, options))
    _check_above_aggregate(model, plan)
    _check_key(model, plan, options)
    joins_above = any(node.name == "Join" for node in nodes[: nodes.index(aggregate)])
    return StreamPlan(rows, output_mode, False, not joins_above, None)


def _appending(model: str, selected: DataFrame) -> StreamPlan:
    """The plan of a `kafka` model: each row is written once, when it is final. SELECT DISTINCT keeps all rows in its state."""
    rows = with_deduplication(selected)
    nodes = _nodes(model, optimized_plan(rows))
    _is_session(model, next((node for node in nodes if node.name == "Aggregate"), None))
    try:
        check_streaming_plan(rows, "Append")
    except PySparkException as error:
        raise _error(model, NOT_FINAL if "without watermark" in str(error) else _remedy(error)) from None
    is_stateless = not _joins_streams(nodes) and not any(node.name in STATEFUL for node in nodes)
    return StreamPlan(rows, "Append", is_stateless, is_unique=False, order=None)


def _nodes(model: str, plan: PlanNode) -> list[PlanNode]:
    nodes = list(_streaming_nodes(plan))
    # Spark accepts LIMIT in append mode, and counts the rows of all batches.
    if any(node.name in LIMITS for node in nodes):
        raise _error(model, REMEDIES["Limits are not supported"])
    return nodes


def _is_session(model: str, aggregate: PlanNode | None) -> bool:
    sessions = [text.startswith("session_window") for text in aggregate.grouping] if aggregate is not None else []
    # Spark refuses it only when the query runs.
    if sessions and all(sessions):
        raise _error(model, GLOBAL_SESSION)
    return any(sessions)


def _joins_streams(nodes: Sequence[PlanNode]) -> bool:
    return any(node.name == "Join" and all(child.is_streaming for child in node.children) for node in nodes)


def analysis_error(model: str, error: PySparkException) -> Exception:
    """The error of a SELECT that Spark does not analyse: with a remedy if it is about streams."""
    known = any(part in str(error) for part in REMEDIES)
    return _error(model, _remedy(error)) if known else error


def _remedy(error: PySparkException) -> str:
    text = str(error)
    return next((remedy for part, remedy in REMEDIES.items() if part in text), first_line(error))


def _error(model: str, reason: str) -> OptionsError:
    return OptionsError(f"model {model}: {reason}. Nothing was started.")


def _streaming_nodes(node: PlanNode) -> Iterator[PlanNode]:
    """The streaming part of a plan, from the top. Static tables may be computed in any way."""
    if node.is_streaming:
        yield node
        for child in node.children:
            yield from _streaming_nodes(child)


def _check_above_aggregate(model: str, plan: PlanNode) -> None:
    """Refuse what removes groups that were published before: an update of the group would not be written."""
    node = plan
    while node.name != "Aggregate":
        if node.name == "Union":
            raise _error(model, "a UNION of an aggregate can't be published as a stream; aggregate the UNION instead")
        if node.name in DROPPING_ROWS and not (node.name == "Join" and node.join_type == "LeftOuter"):
            raise _error(model, DROPPING_ROWS[node.name])
        node = next(child for child in node.children if child.is_streaming)


def _check_key(model: str, plan: PlanNode, options: ModelOptions) -> None:
    """Refuse a unique_key that several groups share: a batch with one of them would overwrite the others."""
    names = {column.lower(): text for column, text in plan.output.items()}
    key = {names[column.lower()] for column in options.unique_key if column.lower() in names}
    node = plan
    while True:
        if node.name in ("Project", "Aggregate"):
            definitions = node.definitions
            key = {definitions.get(text, text) for text in key}
        if node.name == "Aggregate":
            break
        node = next(child for child in node.children if child.is_streaming)
    # The start or the end of a time window identifies it.
    missing = [text for text in node.grouping if not key & {text, f"{text}.start", f"{text}.end"}]
    if missing:
        columns = ", ".join(text.split("#")[0] for text in missing)
        raise _error(
            model,
            f"the SELECT groups by {columns}, which is not in unique_key ({', '.join(options.unique_key)}), so that several "
            "groups would have one key. Add it to unique_key as it is, without a function around it",
        )


def _order(model: str, rows: DataFrame, options: ModelOptions) -> Column | None:
    if options.sequence_by:
        return None
    columns = {column.lower(): column for column in rows.columns}
    if not set(ORDER) <= columns.keys():
        raise _error(
            model,
            "a batch may have several events of one key, and nothing tells which is the last. Set sequence_by with "
            "on_duplicate_key='latest', or select kafka_partition and kafka_offset (and list them in exclude_columns)",
        )
    return F.struct(*(F.col(f"`{columns[name]}`") for name in ORDER))
