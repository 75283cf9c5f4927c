"""The dbt variables of this adapter. Their names begin with `upsert_kafka_`.

A misspelt variable is an error: `upsert_kafka_dryrun: true` would publish instead of showing what would be published.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbt.adapters.upsert_kafka.options.dialects import NEAR_MISS, nearest, shown
from dbt.adapters.upsert_kafka.options.table import underscored
from dbt.adapters.upsert_kafka.options.values import BOOLEAN

PREFIX = "upsert_kafka_"
DRY_RUN = "upsert_kafka_dry_run"
VARIABLES = {DRY_RUN: BOOLEAN}


def problems(variables: Mapping[str, Any]) -> list[str]:
    """One sentence per variable that is misspelt or has a wrong value.

    >>> problems({"upsert_kafka_dryrun": True, "region": "eu"})
    ['variable upsert_kafka_dryrun: does not exist; did you mean upsert_kafka_dry_run?']
    >>> problems({"upsert_kafka_dry_run": "ture"})
    ["variable upsert_kafka_dry_run='ture': must be true or false"]
    """
    found = []
    for name, value in variables.items():
        if known := VARIABLES.get(name):
            try:
                known.parse(value)
            except ValueError as error:
                found.append(f"variable {name}={shown(value, False)}: {error}")
            continue
        folded = underscored(str(name)).lower()
        near = nearest(folded, VARIABLES, NEAR_MISS)
        if folded.startswith(PREFIX) or near:
            found.append(f"variable {name}: does not exist; {f'did you mean {near}?' if near else _existing()}")
    return found


def is_dry_run(value: Any) -> bool:
    """The value of `upsert_kafka_dry_run`, after `problems` found none."""
    return bool(BOOLEAN.parse(value))


def _existing() -> str:
    return f"this adapter has {', '.join(VARIABLES)}"
