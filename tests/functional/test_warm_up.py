"""`upsert-kafka warm-up` writes the class archive once, and Spark's JVM loads its classes from it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka import embedded
from dbt.adapters.upsert_kafka.java import cache_dir
from tests.dbt_project import PACKAGE_ROOT

SECONDS = 900
CLASSES = ("org.apache.spark.SparkContext", "org.apache.kafka.clients.consumer.ConsumerConfig")
START_SPARK = """
import sys
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.spark import session, settings
jvm = {settings.JVM_OPTIONS: f"-Xlog:class+load:file={sys.argv[1]}", settings.CATALOG: "in-memory"}
session.get_session(UpsertKafkaCredentials(schema="a", bootstrap_servers="127.0.0.1:9", master="local[1]", spark=jvm))
session.stop()
"""


def new_cache(folder: Path) -> dict[str, str]:
    """An environment with a cache of its own: the jars that are downloaded already, and no class archive."""
    cache = folder / cache_dir().name
    cache.mkdir(parents=True)
    for entry in cache_dir().iterdir() if cache_dir().is_dir() else ():
        if entry.is_dir():
            (cache / entry.name).symlink_to(entry)
    return {**os.environ, "XDG_CACHE_HOME": str(folder), "PYTHONPATH": str(PACKAGE_ROOT)}


def python(environment: Mapping[str, str], folder: Path, *arguments: str) -> str:
    """Run Python in a folder that is not a dbt project and return what it printed on stderr."""
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.nightly
def test_warm_up_writes_an_archive_that_spark_uses_and_a_second_call_keeps(tmp_path: Path) -> None:
    environment = new_cache(tmp_path / "cache")
    warm_up = ("-m", "dbt.adapters.upsert_kafka.cli", "warm-up")
    assert "Ready (" in python(environment, tmp_path, *warm_up)
    [archive] = (tmp_path / "cache").glob("*/*.jsa")
    written = archive.stat()

    assert "Ready (" in python(environment, tmp_path, *warm_up)
    again = archive.stat()
    assert (again.st_ino, again.st_mtime_ns, again.st_size) == (written.st_ino, written.st_mtime_ns, written.st_size)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cache"], "warm-up works without a project and leaves none"

    log = tmp_path / "classes.log"
    python(environment, tmp_path, "-c", START_SPARK, str(log))
    for name in CLASSES:
        [line] = [line for line in log.read_text().splitlines() if f"] {name} source:" in line]
        assert line.endswith("source: shared objects file (top)"), line


@pytest.mark.nightly
def test_broker_of_warm_up_has_ended_before_its_folder_is_deleted(tmp_path: Path) -> None:
    environment = new_cache(tmp_path / "cache")
    project = tmp_path / "project"
    python(
        environment, tmp_path, "-m", "dbt.adapters.upsert_kafka.operations.class_archive", str(project), str(tmp_path / "new.jsa")
    )
    assert not embedded.is_running(project), "the broker would write files into a folder that is being deleted"
