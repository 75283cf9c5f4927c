"""The version of Java is known without starting it."""

from __future__ import annotations

import fcntl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore
from typing import IO

import pytest

from dbt.adapters.upsert_kafka import java
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError

FAILS_IF_STARTED = "#!/bin/sh\necho started >> started\nexit 1\n"


def java_home(folder: Path, script: str, release: str | None = None) -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(script)
    binary.chmod(0o755)
    if release is not None:
        (folder / "release").write_text(release)
    return folder


def clear_caches() -> None:
    for function in (java.find_java, java._release):
        function.cache_clear()


@pytest.fixture(autouse=True)
def without_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    clear_caches()


def test_version_is_read_from_the_file_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    release = 'IMPLEMENTOR="Debian"\nJAVA_VERSION="21.0.4"\n'
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "jdk", FAILS_IF_STARTED, release)))
    assert java.major_version() == "21"
    assert java.build() == release
    assert not (tmp_path / "started").exists()


def test_old_java_is_refused_by_the_file_release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "jdk", FAILS_IF_STARTED, 'JAVA_VERSION="11.0.2"\n')))
    with pytest.raises(UpsertKafkaError, match="is version 11"):
        java.find_java()


def test_java_that_is_a_script_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "shims", FAILS_IF_STARTED)))
    monkeypatch.setattr(java, "_version", lambda path: 'openjdk version "17.0.9"' if "shims" in path else "")
    assert java.major_version() == "17"


LISTED = "software.amazon.msk:aws-msk-iam-auth:2.3.2:jar:all"


@pytest.mark.parametrize("others", [[], ["com.example:other:1.0"], ["org.apache.kafka:kafka-clients:9.9.9:jar"]])
def test_listed_jar_is_checked_also_beside_jars_that_are_not_listed(tmp_path: Path, others: list[str]) -> None:
    for coordinate in others:
        _, artifact, version, *_ = coordinate.split(":")
        (tmp_path / f"{artifact}-{version}.jar").write_bytes(b"anything")
    java.check_sums("jars", others, sorted(tmp_path.iterdir()))
    (tmp_path / "aws-msk-iam-auth-2.3.2-all.jar").write_bytes(b"not the file of AWS")
    with pytest.raises(UpsertKafkaError, match=r"rejected: aws-msk-iam-auth-2\.3\.2-all\.jar is not the file"):
        java.check_sums("jars", [LISTED, *others], sorted(tmp_path.iterdir()))


def test_java_is_looked_up_once_per_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "jdk", FAILS_IF_STARTED, 'JAVA_VERSION="21.0.4"\n')))
    found = java.find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "other"))
    assert java.find_java() == found
    clear_caches()
    with pytest.raises(UpsertKafkaError, match="other"):
        java.find_java()


def test_second_process_waits_for_a_download_and_uses_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two threads are like two processes here: each opens the lock file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    downloads: list[Path] = []
    asked = Semaphore(0)
    flock = fcntl.flock

    def ask(lock: IO[str], operation: int) -> None:
        asked.release()
        flock(lock, operation)

    def resolve(name: str, coordinates: list[str], exclude: list[str], folder: Path) -> None:
        downloads.append(folder)
        assert asked.acquire(timeout=10) and asked.acquire(timeout=10), "the other process does not ask for the lock"
        folder.mkdir()
        (folder / "spark.jar").touch()

    def fetch() -> list[Path]:
        return java.fetch_jars("Spark", ["org:spark:4.0.0"])

    monkeypatch.setattr(java, "_resolve", resolve)
    monkeypatch.setattr(java.fcntl, "flock", ask)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.submit(fetch), threads.submit(fetch)
        assert first.result(30) == second.result(30) == [downloads[0] / "spark.jar"]
    assert len(downloads) == 1


def teardown_module() -> None:
    clear_caches()
