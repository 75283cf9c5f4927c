"""What happens if the columns or the key of a SELECT differ from those of the last run; decided before anything is written.

Leaves to `difference` that other bytes are a change, to `announce` how two layouts differ, and to the state record which columns
the last run published.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError
from dbt.adapters.upsert_kafka.publish import announce
from dbt.adapters.upsert_kafka.publish.guards import NOTHING_WRITTEN
from dbt.adapters.upsert_kafka.sql import quote_identifier
from dbt.adapters.upsert_kafka.state.record import Layout

FAIL, APPEND = "fail", "append_new_columns"
MODES = ("ignore", FAIL, APPEND, "sync_all_columns")
"""`ignore` and `sync_all_columns` publish the SELECT's columns as they are: a topic has no columns that could stay unchanged."""


def check_mode(model: str, mode: str) -> None:
    """Refuse an on_schema_change that does not exist."""
    if mode not in MODES:
        raise OptionsError(f"model {model}: on_schema_change='{mode}' is unknown. Use one of {', '.join(MODES)}.")


def with_removed_columns(rows: DataFrame, published: StructType) -> DataFrame:
    """The rows for `append_new_columns`: new columns are added, and columns that the SELECT lacks are published as nulls."""
    now = {field.name.lower(): field for field in rows.schema.fields}
    before = {field.name.lower(): field for field in published.fields}
    removed = [field for name, field in before.items() if name not in now]
    if not removed:
        return rows
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in removed]
    added = [now[name].name for name in now if name not in before]
    order = [now[name].name if name in now else field.name for name, field in before.items()] + added
    return rows.select("*", *nulls).select(*(quote_identifier(name) for name in order))


def check(model: str, before: Layout | None, now: Layout) -> None:
    """Refuse any difference, for `on_schema_change='fail'`.

    Args:
        before: of the messages in the topic, None if there are none or if it is not known.
    """
    found = announce.differences(before, now) if before is not None else None
    if found:
        raise GuardError(
            f"model {model}: the messages of this run differ from those published ({found}) and on_schema_change='fail'. "
            f"{NOTHING_WRITTEN} Change on_schema_change, or run with --full-refresh."
        )


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
            f"model {model}: the key changed {_key_change(json.loads(before), json.loads(now))}, so every key in the topic would "
            f"be foreign. {NOTHING_WRITTEN} Run with --full-refresh to publish with the new keys and delete the old ones."
        )
    return True


def _key_change(before: dict[str, Any], now: dict[str, Any]) -> str:
    """What differs between two key layouts.

    >>> key = {"format": "json", "fields": [["id", "int"]], "options": {}}
    >>> _key_change(key, {**key, "fields": [["name", "string"]]})
    'from id (int) to name (string)'
    >>> _key_change(key, {**key, "format": "csv"})
    'from format json to csv'
    """
    if before.get("fields") != now.get("fields"):
        return f"from {_columns(before)} to {_columns(now)}"
    if before.get("format") != now.get("format"):
        return f"from format {before.get('format')} to {now.get('format')}"
    return f"in the options of its format from {before.get('options')} to {now.get('options')}"


def _columns(layout: dict[str, Any]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in layout.get("fields", ()))
