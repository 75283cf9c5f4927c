"""A SELECT whose columns or key are others than last time: what `on_schema_change` says, decided before anything is written.

Leaves to `changes` that other bytes are a change, and to `views` what was exposed last.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError
from dbt.adapters.upsert_kafka.sql import quote_identifier

MODES = ("ignore", "fail", "append_new_columns", "sync_all_columns")


def reconcile(model: str, rows: DataFrame, exposed: StructType | None, mode: str) -> DataFrame:
    """The rows to publish, given the columns that the view exposed last (None: there is no view yet).

    `ignore` and `sync_all_columns` follow the SELECT: a topic has no columns that could be left behind. `append_new_columns`
    takes new columns and keeps vanished ones, as nulls. `fail` refuses any difference.
    """
    if mode not in MODES:
        raise OptionsError(f"{model}: on_schema_change='{mode}' is unknown: use one of {', '.join(MODES)}")
    if exposed is None or mode in ("ignore", "sync_all_columns"):
        return rows
    now = {f.name.lower(): f for f in rows.schema.fields}
    then = {f.name.lower(): f for f in exposed.fields}
    added = [now[name].name for name in now if name not in then]
    removed = [field for name, field in then.items() if name not in now]
    retyped = [
        f"{now[name].name} ({field.dataType.simpleString()} to {now[name].dataType.simpleString()})"
        for name, field in then.items()
        if name in now and now[name].dataType != field.dataType
    ]
    if mode == "fail" and (added or removed or retyped):
        what = {"added": added, "removed": [f.name for f in removed], "of another type": retyped}
        listed = "; ".join(f"{how}: {', '.join(names)}" for how, names in what.items() if names)
        raise GuardError(
            f"{model}: the SELECT's columns are others than those published ({listed}) and on_schema_change='fail'. "
            "Nothing was written; the topic is untouched. Change on_schema_change, or run with --full-refresh"
        )
    kept = [F.lit(None).cast(field.dataType).alias(field.name) for field in removed]
    order = [now[name].name if name in now else field.name for name, field in then.items()] + added
    return rows.select("*", *kept).select(*(quote_identifier(name) for name in order)) if kept else rows


def check_key(model: str, before: str | None, now: str, live: bool, full_refresh: bool) -> bool:
    """Refuse another key layout than the topic's keys have; with --full-refresh the old keys are to be deleted.

    Returns:
        Whether the old keys are foreign now.
    """
    if before is None or before == now or not live:
        return False
    if not full_refresh:
        raise GuardError(
            f"{model}: unique_key, key_format or one of the key's options changed, so every key in the topic "
            f"would be a foreign one (was {before}, is {now}). Nothing was written; the topic is untouched. "
            "Run with --full-refresh to publish under the new keys and delete the old ones"
        )
    return True
