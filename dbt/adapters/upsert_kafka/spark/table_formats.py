"""Which file format dbt's snapshots and incremental models need, and what to do if Spark can't read a format.

Leaves to dbt-spark the tables themselves.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any

from dbt.adapters.upsert_kafka.errors import OptionsError

WITH_MERGE = ("delta", "iceberg", "hudi")
NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
_NO_DELTA = re.compile(rf"\[{NOT_FOUND}\][^\n]* data source: \S*delta")
REMEDY = "Add the line `file_format: delta` to the target in profiles.yml."


def set_defaults(kind: str, name: str, config: MutableMapping[str, Any], profile_format: str | None) -> None:
    """Set the defaults of a node: the profile's file_format, and the strategy `merge` for a Delta table with a unique_key.

    Args:
        kind: dbt's resource type.

    Raises:
        OptionsError: the node needs MERGE, which its format does not have.
    """
    if config.get("file_format") is None and profile_format is not None:
        config["file_format"] = profile_format
    found = config.get("file_format") or "parquet"
    if kind == "snapshot" and found not in WITH_MERGE:
        raise OptionsError(f"snapshot {name}: a snapshot needs Delta Lake, and file_format is {found}. {REMEDY}")
    if config.get("materialized") != "incremental" or not config.get("unique_key"):
        return
    strategy = config.get("incremental_strategy")
    if found == "delta" and not strategy:
        config["incremental_strategy"] = "merge"
    elif strategy == "merge" and found not in WITH_MERGE:
        raise OptionsError(f"model {name}: incremental_strategy 'merge' needs Delta Lake, and file_format is {found}. {REMEDY}")
    elif not strategy and found not in WITH_MERGE:
        raise OptionsError(
            f"model {name}: an incremental model with unique_key needs Delta Lake, and file_format is {found}, so that rows "
            f"would only be added. {REMEDY} If rows should only be added, set incremental_strategy='append'."
        )


def explain(error: Exception) -> str | None:
    """The message for a table whose format this Spark does not know; None for other errors."""
    # By its text: pyspark has no class for this error of the JVM.
    if not _NO_DELTA.search(str(error)):
        return None
    return f"[{NOT_FOUND}] A table has the format Delta Lake, which this target does not load. {REMEDY}"
