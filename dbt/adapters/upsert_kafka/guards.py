"""What refuses a change before anything is written. A refused run leaves the topic untouched.

Leaves to `changes` how the counts came about.
"""

from __future__ import annotations

from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.changes import DUPLICATE, KIND, NULL, Changes
from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.records import KEY, Records

EXAMPLES = 5


def check(model: str, changes: Changes, records: Records) -> None:
    """Refuse the change with every reason at once, or let it pass."""
    reasons = [reason for reason in (_duplicates(changes, records), _null_keys(changes, records)) if reason]
    if reasons:
        raise GuardError("\n".join(f"{model}: {reason}" for reason in reasons) + "\nNothing was written; the topic is untouched.")


def _duplicates(changes: Changes, records: Records) -> str | None:
    if not changes[DUPLICATE]:
        return None
    repeated = changes.frame.where(F.col(KIND) == DUPLICATE).groupBy(KEY).count()
    worst = repeated.orderBy(F.desc("count"), KEY).select(records.show_key().alias("shown"), "count").limit(EXAMPLES).collect()
    examples = ", ".join(f"{row['shown']} ({row['count']} rows)" for row in worst)
    return f"{changes[DUPLICATE]} rows share a unique_key ({_names(records)}) with another row, for example {examples}; a key must name one row"


def _null_keys(changes: Changes, records: Records) -> str | None:
    if not changes[NULL]:
        return None
    nulls = changes.frame.where(F.col(KIND) == NULL).select(records.show_key().alias("shown")).limit(EXAMPLES).collect()
    examples = ", ".join(row["shown"] for row in nulls)
    return f"{changes[NULL]} rows have NULL in a column of unique_key ({_names(records)}), for example {examples}; a key can't be NULL"


def _names(records: Records) -> str:
    return ", ".join(field.column for field in records.key.fields)
