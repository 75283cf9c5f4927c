"""What happens if the columns or the key of a SELECT differ from those of the last run; decided before anything is written.

Leaves to `difference` that other bytes are a change, to `announce` how two layouts differ, and to the state record which columns
the last run published.
"""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka.catalog import views
from dbt.adapters.upsert_kafka.catalog.reading import METADATA
from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError
from dbt.adapters.upsert_kafka.formats.changelog import ROW_KIND
from dbt.adapters.upsert_kafka.options.table import KAFKA
from dbt.adapters.upsert_kafka.publish import announce
from dbt.adapters.upsert_kafka.publish.guards import NOTHING_WRITTEN
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.sql import quote_identifier, type_text
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


def announcements(before: Layout | None, now: Layout, request: Request) -> list[str]:
    """What other columns or another format mean to consumers, unless the model's on_schema_change refuses them."""
    if request.on_schema_change == FAIL and not request.full_refresh:
        check(request.model, before, now)
    change = announce.layout_change(before, now, request.topic)
    return [change] if change else []


def exposed_layout(spark: SparkSession, request: Request) -> Layout | None:
    """The columns of the view that an earlier run created, for a topic without a state record; None if there is none."""
    if request.existing is None or not request.existing.is_view:
        return None
    metadata = (*METADATA, ROW_KIND) if request.options.materialization == KAFKA else ()
    fields = [field for field in views.columns(spark, request.relation).fields if field.name not in metadata]
    return Layout("{}", "{}", tuple((field.name, type_text(field.dataType)) for field in fields))


def check_key(model: str, before: str | None, now: str, full_refresh: bool) -> bool:
    """Whether the key layout changed; raises GuardError without --full-refresh.

    Args:
        before: the key layout of the records in the topic, None if that is not known.
        now: the key layout of this run, see `Records.key_layout`.
    """
    if before is None or before == now:
        return False
    if not full_refresh:
        change = announce.key_change(json.loads(before), json.loads(now))
        raise GuardError(
            f"model {model}: the key changed {change}, so every key in the topic would be foreign. {NOTHING_WRITTEN} "
            "Run with --full-refresh to publish with the new keys and delete the old ones."
        )
    return True
