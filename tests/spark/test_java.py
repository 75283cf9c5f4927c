"""Downloaded jars are compared with the checksums of those that this version was tested with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka import java
from dbt.adapters.upsert_kafka.errors import JarsNotFoundError, UpsertKafkaError
from dbt.adapters.upsert_kafka.spark.settings import INSIDE_SPARK, kafka_jars

PINNED = kafka_jars("4.0.0")


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    """Copies of the jars that the tests use."""
    return [Path(shutil.copy(jar, tmp_path)) for jar in java.fetch_jars("spark-kafka", PINNED, INSIDE_SPARK)]


def test_jars_of_a_listed_version_are_accepted(jars: list[Path]) -> None:
    java.check_sums("spark-kafka", PINNED, jars)


def test_changed_jar_is_refused(jars: list[Path]) -> None:
    with open(jars[0], "ab") as jar:
        jar.write(b"!")
    with pytest.raises(UpsertKafkaError, match=f"{jars[0].name} is not the file that this version was tested with"):
        java.check_sums("spark-kafka", PINNED, jars)


def test_unlisted_jar_is_refused(jars: list[Path]) -> None:
    extra = jars[0].with_name("extra-1.0.jar")
    shutil.copy(jars[0], extra)
    with pytest.raises(UpsertKafkaError, match=r"extra-1\.0\.jar"):
        java.check_sums("spark-kafka", PINNED, [*jars, extra])


def test_unlisted_version_is_accepted(jars: list[Path]) -> None:
    java.check_sums("spark-kafka", kafka_jars("4.9.9"), [jars[0].rename(jars[0].with_name("spark-avro_2.13-4.9.9.jar"))])


def test_repository_that_can_not_be_reached_is_not_one_that_lacks_the_jar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1")
    with pytest.raises(UpsertKafkaError, match=r"not be downloaded from https://\S+: java\.net\.\w+.*Java's proxy") as error:
        java.fetch_files("jars", ["org.tukaani:xz:1.10"])
    assert not isinstance(error.value, JarsNotFoundError) and "\n" not in error.value.msg
