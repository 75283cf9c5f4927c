"""What a run does with each key: `Kind` lists the cases, `Policy` is the choice that the model's options make among them.

Leaves to `difference` how rows and topic are brought together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from pyspark.sql import Column
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.formats.records import IS_DELETED, NULL_KEY, ROW_HASHES, VALUE
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.publish.scan import HASHES, IS_LIVE

KIND = "kind"
COPIES = "copies"
"""How many rows of the SELECT have the key; null for a key that is in the topic only."""


class Kind(StrEnum):
    """The kind of one row of the SELECT, or of one key of the topic that has no row.

    `is_written`: the run writes a message for the key.
    `is_counted`: the number of keys is part of the result.
    `is_shown`: the key stays in `Changes.frame`, so that it can be written, or shown as an example in a message.

    >>> [kind.value for kind in Kind if kind.is_written]
    ['insert', 'update', 'delete', 'republish']
    >>> [kind.value for kind in Kind if not kind.is_shown]
    ['unchanged', 'kept', 'absent']
    """

    is_written: bool
    is_counted: bool
    is_shown: bool

    def __new__(cls, name: str, is_written: bool, is_counted: bool, is_shown: bool) -> Self:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.is_written, kind.is_counted, kind.is_shown = is_written, is_counted, is_shown
        return kind

    # name, is_written, is_counted, is_shown
    INSERT = "insert", True, True, True
    """A row whose key is not live in the topic: unknown, or its last record is a tombstone."""
    UPDATE = "update", True, True, True
    """A row whose key has another value in the topic."""
    DELETE = "delete", True, True, True
    """A live key without a row, or whose row meets delete_when."""
    REPUBLISH = "republish", True, True, True
    """A row that the topic has with the same value, written again because of --full-refresh, or because another partition has
    an old value of the key."""
    DUPLICATE = "duplicate", False, True, True
    """A row that shares its key with another row."""
    NULL = "null_key", False, True, True
    """A row with NULL in a column of unique_key."""
    NULL_VALUE = "null_value", False, True, True
    """A row whose value is encoded as null, which would delete its key."""
    CONFLICT = "conflict", False, True, True
    """A changed row where update_mode='append' allows new keys only."""
    FOREIGN = "foreign", False, True, True
    """A live key without a row that the model's key format can't have written, so another writer's."""
    UNCHANGED = "unchanged", False, True, False
    """A row that the topic has with the same value."""
    KEPT = "kept", False, True, False
    """A live key that would be deleted if the options allowed deletes (missing_keys, update_mode, sink_ignore_retraction)."""
    ABSENT = "absent", False, False, False
    """A key that is not live and gets no value: a tombstone without a row, or a row that meets delete_when."""
    VANISHED = "vanished", False, False, True
    """Intermediate: a live key without a row, before its bytes are checked. It becomes DELETE or FOREIGN."""


WRITTEN = tuple(kind for kind in Kind if kind.is_written)
COUNTED = tuple(kind for kind in Kind if kind.is_counted)
NOT_SHOWN = tuple(kind for kind in Kind if not kind.is_shown)


@dataclass(frozen=True)
class Policy:
    """Which differences between rows and topic are written."""

    update_mode: str = "upsert"
    writes_nulls: bool = True
    """False with sink_ignore_retraction: no tombstones."""
    deletes_missing: bool = True
    """Whether a live key without a row is deleted."""
    deletes_foreign: bool = False
    takes_latest: bool = False
    """Of several rows with one key, take the one with the greatest sequence_by instead of failing."""
    republishes: bool = False
    """--full-refresh: write every row, whatever the update mode is."""

    @classmethod
    def of(cls, options: ModelOptions, full_refresh: bool, deletes_old_keys: bool) -> Policy:
        """The policy of a run.

        Args:
            deletes_old_keys: whether the key layout changed, so that the old keys of the model are foreign now.
        """
        return cls(
            update_mode=options.update_mode or "upsert",
            writes_nulls=not options.sink_ignore_retraction,
            deletes_missing=options.missing_keys != "keep" or full_refresh,
            deletes_foreign=options.foreign_keys == "delete" or deletes_old_keys,
            takes_latest=options.on_duplicate_key == "latest",
            republishes=full_refresh,
        )

    @property
    def only_new_keys(self) -> bool:
        return self.update_mode == "append" and not self.republishes

    @property
    def retracts(self) -> bool:
        """Whether an update is two messages: a tombstone and the new value."""
        return self.update_mode == "retract" and self.writes_nulls

    @property
    def deletes(self) -> bool:
        return self.writes_nulls and not self.only_new_keys

    @property
    def is_complete(self) -> bool:
        """Whether the topic has exactly the rows after all differences are written."""
        return self.deletes and self.deletes_missing


def kind_of(policy: Policy) -> Column:
    """The kind of each row of the full outer join of rows (`copies`, `row_hash_1`, …) and topic (`live`, `hash_1`, …)."""
    is_live = f"coalesce({IS_LIVE}, false)"
    are_same = " AND ".join(f"{of_row} <=> {of_topic}" for of_row, of_topic in zip(ROW_HASHES, HASHES, strict=True))
    if not policy.is_complete:
        without_row = Kind.KEPT
    elif policy.deletes_foreign:
        without_row = Kind.DELETE
    else:
        without_row = Kind.VANISHED
    of_row: dict[str, Kind] = {
        NULL_KEY: Kind.NULL,
        f"{COPIES} > 1": Kind.DUPLICATE,
        f"{IS_DELETED} AND {is_live}": Kind.DELETE if policy.deletes else Kind.KEPT,
        IS_DELETED: Kind.ABSENT,
        f"{VALUE} IS NULL": Kind.NULL_VALUE,
        f"NOT {is_live}": Kind.INSERT,
        are_same: Kind.REPUBLISH if policy.republishes else Kind.UNCHANGED,
        "true": Kind.CONFLICT if policy.only_new_keys else Kind.UPDATE,
    }
    kind_of_row = "".join(f" WHEN {condition} THEN '{kind}'" for condition, kind in of_row.items())
    kind_of_key = f"if({is_live}, '{without_row}', '{Kind.ABSENT}')"
    return F.expr(f"CASE WHEN {COPIES} IS NULL THEN {kind_of_key}{kind_of_row} END")
