"""An archive of the classes that Spark loads: with it Java maps them at the start instead of loading and verifying each.

`make` writes it once into the user's cache (`upsert-kafka warm-up`); `options` lets `session` use it where it is. Java itself
checks that an archive fits and goes on without it if not. Speed only: nothing depends on it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from dbt.adapters.upsert_kafka import java
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError

# Java would warn on stdout about an archive that does not fit.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"


def archive_path() -> Path:
    """Where the archive for this Java and this Spark is, or would be."""
    facts = [java.java_version(), pyspark.__version__, str(Path(pyspark.__file__).parent)]
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:12]
    return java.cache_dir() / f"spark-classes-{digest}.jsa"


def options() -> str:
    """JVM options that use the archive; none while there is no archive."""
    archive = archive_path()
    return f"-XX:SharedArchiveFile='{archive}' {QUIET}" if archive.is_file() else ""


def make() -> Path:
    """Write the archive, with the classes of a small project that publishes; what is there already is kept."""
    archive = archive_path()
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        fresh = Path(scratch) / "classes.jsa"
        command = [sys.executable, "-m", __name__, str(Path(scratch) / "project"), str(fresh)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not fresh.is_file():
            last = (done.stderr.strip().splitlines() or ["it wrote no archive"])[-1]
            raise UpsertKafkaError(f"The class archive could not be made: {last}")
        os.replace(fresh, archive)
    return archive


def _exercise(project: Path, archive: Path) -> None:
    """Publish twice from a project of its own, in a JVM that writes the archive when it ends."""
    from dbt.adapters.contracts.relation import RelationType
    from pyspark import SparkContext

    from dbt.adapters.upsert_kafka import options as model_options
    from dbt.adapters.upsert_kafka import publish, session
    from dbt.adapters.upsert_kafka.credentials import EMBEDDED, UpsertKafkaCredentials
    from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
    from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
    from dbt.adapters.upsert_kafka.topics import Wanted

    project.mkdir()
    UpsertKafkaCredentials.project_root = project
    jvm = {session.JVM_OPTIONS: f"-XX:ArchiveClassesAtExit='{archive}' {QUIET}"}
    credentials = UpsertKafkaCredentials(schema="warm_up", bootstrap_servers=EMBEDDED, master="local[2]", spark=jvm)
    spark = session.get_session(credentials)
    spark.sql("CREATE DATABASE warm_up")
    spark.sql("CREATE TABLE warm_up.seed (id INT) USING parquet")
    spark.sql("INSERT INTO warm_up.seed VALUES (1), (2)")
    request = publish.Request(
        model="warm_up",
        options=model_options.parse("upsert_kafka", "warm_up", {"unique_key": "id"}),
        topic="warm_up",
        wanted=Wanted(),
        kafka=KafkaSettings.of(credentials),
        relation=UpsertKafkaRelation.create(schema="warm_up", identifier="users", type=RelationType.View),
    )
    for name in ("ann", "bob"):
        publish.publish(spark, spark.sql(f"SELECT id, '{name}' AS name FROM warm_up.seed"), request)
    spark.sql("SELECT count(*) FROM warm_up.users").collect()
    gateway = SparkContext._gateway
    assert gateway is not None
    session.stop()
    process = gateway.proc
    process.stdin.close()
    process.wait(300)


if __name__ == "__main__":
    _exercise(Path(sys.argv[1]), Path(sys.argv[2]))
