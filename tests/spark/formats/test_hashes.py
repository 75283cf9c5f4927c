"""The hashes that decide whether a row is unchanged: different rows have different hashes, also if somebody chose the values."""

from __future__ import annotations

import secrets

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.formats.records import ROW_HASHES, hashes
from dbt.adapters.upsert_kafka.publish import digest
from dbt.adapters.upsert_kafka.publish.digest import Digest

COLLISION = b"value of a user ", bytes.fromhex("566e6d0d63d5e6452061207522b1ff36")
"""Values whose xxhash64 is equal with every seed: the differences of the two words of 8 bytes cancel each other out."""

Message = tuple[bytes, bytes | None]


def hashes_of(spark: SparkSession, seed: int, *messages: Message) -> list[tuple[int, int]]:
    found = spark.createDataFrame(list(messages), "key binary, value binary").select(*hashes(seed)).collect()
    return [(row[0], row[1]) for row in found]


def digest_of(spark: SparkSession, seed: int, *messages: Message) -> Digest:
    rows = spark.createDataFrame(list(messages), "key binary, value binary")
    columns = {"null_key": F.lit(False), "is_deleted": F.lit(False), **dict(zip(ROW_HASHES, hashes(seed), strict=True))}
    return digest.of_rows(rows.withColumns(columns))


def test_both_hashes_of_different_messages_differ(spark: SparkSession) -> None:
    one, other = COLLISION
    messages: list[Message] = [(b"k", one), (b"k", other), (one, b"v"), (other, b"v")]
    messages += [(b"a", b"bc"), (b"ab", b"c"), (b"abc", b""), (b"abc", None)]
    found = [number for pair in hashes_of(spark, 5, *messages) for number in pair]
    assert len(set(found)) == 2 * len(messages)


def test_seeded_xxhash64_alone_does_not_tell_chosen_values_apart(spark: SparkSession) -> None:
    values = spark.createDataFrame([(value,) for value in COLLISION], "value binary")
    seeds = [F.xxhash64(F.lit(secrets.randbits(63)), "value") for _ in range(20)]
    assert values.select(*seeds).distinct().count() == 1


def test_digest_depends_on_seed_and_not_on_order(spark: SparkSession) -> None:
    a, b = (b"a", b"1"), (b"b", b"2")
    assert digest_of(spark, 5, a, b) == digest_of(spark, 5, b, a)
    of_seeds = [digest_of(spark, seed, a, b) for seed in (5, 6, 2**62)]
    assert len({found.live_1 for found in of_seeds} | {found.live_2 for found in of_seeds}) == 6
