"""A digest of encoded rows: equal digests mean equal rows, so a run that finds its predecessor's digest has nothing to write."""

from __future__ import annotations

import json
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.formats.records import IS_DELETED, NULL_KEY, ROW_HASHES

DELETED_HASH = f"xxhash64('{IS_DELETED}', {', '.join(ROW_HASHES)})"
"""SQL: the hash of an encoded row that meets delete_when."""


class Digest(NamedTuple):
    """What is equal for equal rows, in any order. Digests are comparable only if their rows were hashed with the same seed."""

    rows: int
    nulls: int
    """Rows without a key. They are not part of the checksums."""
    live_1: int
    """XOR of the first hashes of the rows that the topic gets: a snapshot must have the same checksum."""
    live_2: int
    """The same of the second hashes."""
    deleted: int
    """XOR of the hashes of the rows that meet delete_when."""

    @property
    def text(self) -> str:
        """As the state record has it."""
        return json.dumps(self)

    @classmethod
    def of(cls, text: str) -> Digest:
        """The digest whose text this is."""
        return cls(*json.loads(text))


def aggregates() -> list[Column]:
    """Aggregates over encoded rows, in the order of Digest's fields and with their names."""
    is_live, is_deleted = f"NOT {NULL_KEY} AND NOT {IS_DELETED}", f"NOT {NULL_KEY} AND {IS_DELETED}"
    sql = {
        "rows": "count(1)",
        "nulls": f"count_if({NULL_KEY})",
        "live_1": _checksum(is_live, ROW_HASHES[0]),
        "live_2": _checksum(is_live, ROW_HASHES[1]),
        "deleted": _checksum(is_deleted, DELETED_HASH),
    }
    return [F.expr(f"{aggregate} AS {name}") for name, aggregate in sql.items()]


def of_rows(encoded: DataFrame) -> Digest:
    """The digest of encoded rows."""
    [found] = encoded.agg(*aggregates()).collect()
    return Digest(*found)


def _checksum(condition: str, hashes: str) -> str:
    return f"coalesce(bit_xor(CASE WHEN {condition} THEN {hashes} END), 0)"
