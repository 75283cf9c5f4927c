"""A digest of encoded rows: equal digests mean equal rows, so a run that finds its predecessor's digest has nothing to write."""

from __future__ import annotations

import json
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.formats.records import IS_DELETED, NULL_KEY, ROW_HASHES


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


def deleted_hash() -> Column:
    """Hash of an encoded row that meets delete_when."""
    return F.xxhash64(F.lit(IS_DELETED), *ROW_HASHES)


def aggregates() -> list[Column]:
    """Aggregates over encoded rows, in the order of Digest's fields and with their names."""
    is_live, is_deleted = ~F.col(NULL_KEY) & ~F.col(IS_DELETED), ~F.col(NULL_KEY) & F.col(IS_DELETED)
    return [
        F.count(F.lit(1)).alias("rows"),
        F.count_if(F.col(NULL_KEY)).alias("nulls"),
        _checksum(F.when(is_live, F.col(ROW_HASHES[0]))).alias("live_1"),
        _checksum(F.when(is_live, F.col(ROW_HASHES[1]))).alias("live_2"),
        _checksum(F.when(is_deleted, deleted_hash())).alias("deleted"),
    ]


def combined() -> list[Column]:
    """Aggregates over groups' `aggregates`: the digest of all groups together."""
    sums = (F.sum("rows"), F.sum("nulls"), F.bit_xor("live_1"), F.bit_xor("live_2"), F.bit_xor("deleted"))
    return [F.coalesce(value, F.lit(0)).alias(name) for name, value in zip(Digest._fields, sums, strict=True)]


def of_rows(encoded: DataFrame) -> Digest:
    """The digest of encoded rows."""
    [found] = encoded.agg(*aggregates()).collect()
    return Digest(*found)


def _checksum(hashes: Column) -> Column:
    return F.coalesce(F.bit_xor(hashes), F.lit(0))
