"""The checks that refuse changes before anything is written.

Each reason has the number of keys or rows, some examples, and the option that would allow them. Leaves to `difference` how the
keys are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.errors import GuardError, count_of
from dbt.adapters.upsert_kafka.formats.records import KEY, VALUE, Records
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.publish.changes import Changes
from dbt.adapters.upsert_kafka.publish.kinds import KIND, Kind

EXAMPLES = 5
NOTHING_WRITTEN = "Nothing was written; the topic is untouched."


def check(model: str, changes: Changes, records: Records, options: ModelOptions, broken: Sequence[str] = ()) -> list[str]:
    """Raise GuardError with all reasons to refuse the changes.

    Args:
        broken: constraints of the model's contract that its rows violate, see `violations.ViolationCount`.

    Returns:
        Warnings about what is allowed.
    """
    reasons = [*broken, *(reason for guard in GUARDS if (reason := guard(changes, records, options)))]
    if reasons:
        raise GuardError("\n".join(f"model {model}: {reason}" for reason in reasons) + f"\n{NOTHING_WRITTEN}")
    return [warning for guard in WARNINGS if (warning := guard(changes, records, options))]


def _duplicates(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    number = changes[Kind.DUPLICATE]
    if not number:
        return None
    by_key = changes.frame.where(F.col(KIND) == Kind.DUPLICATE).groupBy(KEY).count()
    worst = by_key.orderBy(F.desc("count"), KEY).select(records.show_key().alias("key"), "count").limit(EXAMPLES).collect()
    shown = ", ".join(f"{row['key']} ({count_of(row['count'], 'row')})" for row in worst)
    share = f"{count_of(number, 'row', 'shares', 'share')} the unique_key ({_names(records)})"
    if options.on_duplicate_key == "latest":
        return (
            f"{share} and the sequence_by ({', '.join(options.sequence_by)}) with another row, for example {shown}. "
            "Add a column to sequence_by that differs between them."
        )
    return (
        f"{share} with another row, for example {shown}. "
        "Make the SELECT unique, or set on_duplicate_key='latest' with sequence_by."
    )


def _null_keys(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    number = changes[Kind.NULL]
    if not number or options.on_null_key == "drop":
        return None
    rows = ", ".join(changes.examples(Kind.NULL, records.show_value(VALUE), EXAMPLES))
    return f"{null_keys(number, _names(records))}, for example {rows}. Filter such rows in the SELECT, or set on_null_key='drop'."


def null_keys(number: int, columns: str) -> str:
    """How many rows have no key."""
    return f"{count_of(number, 'row', 'has', 'have')} NULL in a column of unique_key ({columns})"


def _empty(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    rows_with_key = changes.rows - changes[Kind.NULL]
    if rows_with_key or not changes[Kind.DELETE] or options.allow_empty:
        return None
    return (
        f"the SELECT has no rows and the topic has {count_of(changes.live_keys, 'key')}. "
        "Set allow_empty=true if they are to be deleted."
    )


def _too_many_deletes(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    limit, number = options.max_deletes, changes[Kind.DELETE]
    if limit is None or limit.allows(number, changes.live_keys):
        return None
    allowed = limit.count if limit.percent is None else math.floor(limit.percent * changes.live_keys / 100)
    return (
        f"{number} of the topic's {count_of(changes.live_keys, 'key')} would be deleted, for example "
        f"{_examples(changes, Kind.DELETE, records)}, max_deletes={limit} allows {allowed}. "
        "Raise max_deletes if this is intended."
    )


def _null_values(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    number = changes[Kind.NULL_VALUE]
    if not number:
        return None
    return (
        f"{count_of(number, 'row', 'has', 'have')} NULL as the value of the message ({_value_columns(records)}), for example "
        f"{_examples(changes, Kind.NULL_VALUE, records)}. A message without a value deletes its key. Filter such rows in the "
        "SELECT or use COALESCE; set delete_when if the keys are to be deleted."
    )


def appended_tombstones(number: int, topic: str, cleanup_policy: str | None, records: Records) -> str | None:
    """A warning about events that delete their key. They are written: a row of an append model is an event as it is."""
    if not number or "compact" not in (cleanup_policy or ""):
        return None
    return (
        f"{count_of(number, 'row', 'has', 'have')} a key and NULL as the value of the message ({_value_columns(records)}). Topic "
        f"'{topic}' is compacted, so they are tombstones, which delete the earlier values of their keys."
    )


def _conflicts(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    number = changes[Kind.CONFLICT]
    if not number:
        return None
    return (
        f"{count_of(number, 'row', 'differs', 'differ')} from the topic's value of the same key, for example "
        f"{_examples(changes, Kind.CONFLICT, records)}, and update_mode='append' writes new keys only. "
        "Set update_mode='upsert' to publish changes."
    )


def _dropped(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    number = changes[Kind.NULL]
    return f"on_null_key='drop' left out {count_of(number, 'row')} with NULL in unique_key." if number else None


def _foreign(changes: Changes, records: Records, options: ModelOptions) -> str | None:
    number = changes[Kind.FOREIGN]
    if not number:
        return None
    # The key format can't decode these keys.
    shown = ", ".join(changes.examples(Kind.FOREIGN, F.hex(F.substring(KEY, 1, 20)), EXAMPLES)) if not records.mask else ""
    return (
        f"the topic has {count_of(number, 'key')} that the model's key format can't have written"
        f"{f', for example (hex) {shown}' if shown else ''}. "
        "Keys of other writers are left as they are; set foreign_keys='delete' to delete them."
    )


Guard = Callable[[Changes, Records, ModelOptions], str | None]
GUARDS: tuple[Guard, ...] = (_duplicates, _null_keys, _null_values, _empty, _too_many_deletes, _conflicts)
WARNINGS: tuple[Guard, ...] = (_dropped, _foreign)


def _examples(changes: Changes, kind: Kind, records: Records) -> str:
    shown = records.show_topic_key() if kind == Kind.DELETE else records.show_key()
    return ", ".join(changes.examples(kind, shown, EXAMPLES))


def _names(records: Records) -> str:
    return ", ".join(field.column for field in records.key.fields)


def _value_columns(records: Records) -> str:
    return ", ".join(field.column for field in records.value.fields)
