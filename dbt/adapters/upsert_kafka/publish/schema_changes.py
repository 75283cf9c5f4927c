"""What happens if the columns or the key of a SELECT differ from those of the last run; decided before anything is written.

Leaves to `difference` that other bytes are a change, and to `catalog.views` which columns the last run exposed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError
from dbt.adapters.upsert_kafka.publish.guards import NOTHING_WRITTEN
from dbt.adapters.upsert_kafka.sql import quote_identifier

FOLLOWS_SELECT = ("ignore", "sync_all_columns")
"""Modes in which the SELECT's columns are published as they are: a topic has no columns that could be left unchanged."""
MODES = ("ignore", "fail", "append_new_columns", "sync_all_columns")


def reconcile(model: str, rows: DataFrame, exposed: StructType | None, mode: str) -> DataFrame:
    """The rows to publish, by the model's on_schema_change.

    `append_new_columns` publishes new columns and keeps removed ones, with nulls. `fail` refuses any difference.

    Args:
        exposed: the columns of the view; None if there is no view yet, or if `mode` follows the SELECT.
    """
    if mode not in MODES:
        raise OptionsError(f"model {model}: on_schema_change='{mode}' is unknown. Use one of {', '.join(MODES)}.")
    if exposed is None or mode in FOLLOWS_SELECT:
        return rows
    now = {field.name.lower(): field for field in rows.schema.fields}
    before = {field.name.lower(): field for field in exposed.fields}
    added = [now[name].name for name in now if name not in before]
    removed = [field for name, field in before.items() if name not in now]
    retyped = [
        f"{now[name].name} ({field.dataType.simpleString()} to {now[name].dataType.simpleString()})"
        for name, field in before.items()
        if name in now and now[name].dataType != field.dataType
    ]
    if mode == "fail" and (added or removed or retyped):
        differences = {"added": added, "removed": [field.name for field in removed], "of another type": retyped}
        listed = "; ".join(f"{how}: {', '.join(names)}" for how, names in differences.items() if names)
        raise GuardError(
            f"model {model}: the columns of the SELECT differ from those published ({listed}) and on_schema_change='fail'. "
            f"{NOTHING_WRITTEN} Change on_schema_change, or run with --full-refresh."
        )
    if not removed:
        return rows
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in removed]
    order = [now[name].name if name in now else field.name for name, field in before.items()] + added
    return rows.select("*", *nulls).select(*(quote_identifier(name) for name in order))


def check_key(model: str, before: str | None, now: str, full_refresh: bool) -> bool:
    """Whether the key layout changed; raises GuardError without --full-refresh.

    Args:
        before: the key layout of the records in the topic, None if that is not known.
        now: the key layout of this run, see `Records.key_layout`.
    """
    if before is None or before == now:
        return False
    if not full_refresh:
        raise GuardError(
            f"model {model}: unique_key, key_format or an option of the key's format changed (was {before}, is {now}), "
            f"so every key in the topic would be foreign. {NOTHING_WRITTEN} "
            "Run with --full-refresh to publish with the new keys and delete the old ones."
        )
    return True
