"""What refuses a change before anything is written. A refused run leaves the topic untouched.

Every reason says how many, shows some, and names the option that would allow it. Leaves to `changes` how the counts came about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.changes import CONFLICT, DELETE, DUPLICATE, FOREIGN, KIND, NULL, Changes, examples
from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.records import KEY, Records

EXAMPLES = 5


def check(model: str, changes: Changes, records: Records, options: ModelOptions, broken: Sequence[str] = ()) -> list[str]:
    """Refuse the change with every reason at once, or let it pass.

    Args:
        broken: promises of the model's contract that its rows break.

    Returns:
        What is allowed and still worth a warning.
    """
    reasons = [*broken, *(reason for guard in GUARDS if (reason := guard(changes, records, options)))]
    if reasons:
        raise GuardError("\n".join(f"{model}: {reason}" for reason in reasons) + "\nNothing was written; the topic is untouched.")
    return [f"{model}: {warning}" for report in REPORTS if (warning := report(changes, records, options))]


def _duplicates(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    if not changes[DUPLICATE]:
        return None
    repeated = changes.frame.where(F.col(KIND) == DUPLICATE).groupBy(KEY).count()
    worst = repeated.orderBy(F.desc("count"), KEY).select(records.show_key().alias("shown"), "count").limit(EXAMPLES).collect()
    shown = ", ".join(f"{row['shown']} ({row['count']} rows)" for row in worst)
    if options.on_duplicate_key == "latest":
        return (
            f"{changes[DUPLICATE]} rows share their unique_key ({_names(records)}) and their sequence_by "
            f"({', '.join(options.sequence_by)}) with another row, for example {shown}; "
            "add a column to sequence_by that tells them apart"
        )
    return (
        f"{changes[DUPLICATE]} rows share their unique_key ({_names(records)}) with another row, for example {shown}; "
        "make the SELECT unique, or set on_duplicate_key='latest' with sequence_by"
    )


def _null_keys(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    if not changes[NULL] or options.on_null_key == "drop":
        return None
    shown = ", ".join(examples(changes, NULL, records.show_key(), EXAMPLES))
    return (
        f"{changes[NULL]} rows have NULL in a column of unique_key ({_names(records)}), for example {shown}; "
        "filter them in the SELECT, or set on_null_key='drop'"
    )


def _empty(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    published = changes.rows - changes[NULL]
    if published or not changes[DELETE] or options.allow_empty:
        return None
    return (
        f"the SELECT has no rows and the topic holds {changes.live_keys} keys, which would all be deleted; "
        "set allow_empty=true if that is meant"
    )


def _too_many_deletes(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    limit = options.max_deletes
    if limit is None or limit.allows(changes[DELETE], changes.live_keys):
        return None
    shown = ", ".join(examples(changes, DELETE, records.show_key(), EXAMPLES))
    return (
        f"{changes[DELETE]} of the topic's {changes.live_keys} keys would be deleted, for example {shown}; "
        f"max_deletes={limit} allows fewer: raise it if that is meant"
    )


def _conflicts(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    if not changes[CONFLICT]:
        return None
    shown = ", ".join(examples(changes, CONFLICT, records.show_key(), EXAMPLES))
    return (
        f"{changes[CONFLICT]} rows differ from what the topic holds for their key, for example {shown}; "
        "update_mode='append' writes new keys only: set update_mode='upsert' to publish changes"
    )


def _dropped(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    return f"{changes[NULL]} rows with NULL in unique_key were dropped (on_null_key='drop')" if changes[NULL] else None


def _foreign(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    if not changes[FOREIGN]:
        return None
    shown = ", ".join(examples(changes, FOREIGN, F.hex(F.substring(KEY, 1, 20)), EXAMPLES))
    return (
        f"{changes[FOREIGN]} keys of the topic are not in the model's key format, so another writer's; they were left alone, "
        f"for example (hex) {shown}; set foreign_keys='delete' to delete them"
    )


Guard = Callable[[Changes, Records, ModelOptions], str | None]
GUARDS: tuple[Guard, ...] = (_duplicates, _null_keys, _empty, _too_many_deletes, _conflicts)
REPORTS: tuple[Guard, ...] = (_dropped, _foreign)


def _names(records: Records) -> str:
    return ", ".join(field.column for field in records.key.fields)
