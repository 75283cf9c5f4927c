"""Jars: only those that this version was tested with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka import java
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.session import INSIDE_SPARK, kafka_jars

PINNED = kafka_jars("4.0.0")


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    """A copy of those that the tests run with."""
    return [Path(shutil.copy(jar, tmp_path)) for jar in java.fetch_jars("spark-kafka", PINNED, INSIDE_SPARK)]


def test_the_jars_of_a_pinned_version_are_listed(jars: list[Path]) -> None:
    java.check_sums("spark-kafka", PINNED, jars)


def test_a_jar_with_other_bytes_is_refused(jars: list[Path]) -> None:
    with open(jars[0], "ab") as jar:
        jar.write(b"!")
    with pytest.raises(UpsertKafkaError, match=f"{jars[0].name} is not the file that this version was tested with"):
        java.check_sums("spark-kafka", PINNED, jars)


def test_a_jar_that_nobody_listed_is_refused(jars: list[Path]) -> None:
    extra = jars[0].with_name("extra-1.0.jar")
    shutil.copy(jars[0], extra)
    with pytest.raises(UpsertKafkaError, match=r"extra-1\.0\.jar"):
        java.check_sums("spark-kafka", PINNED, [*jars, extra])


def test_other_versions_are_left_to_the_registry_s_checksums(jars: list[Path]) -> None:
    java.check_sums("spark-kafka", kafka_jars("4.9.9"), [jars[0].rename(jars[0].with_name("spark-avro_2.13-4.9.9.jar"))])
