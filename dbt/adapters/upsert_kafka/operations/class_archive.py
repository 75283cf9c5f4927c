"""Writes the class archive into the user's cache (`upsert-kafka warm-up`); `spark.class_archive` describes its use."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from dbt.adapters.contracts.relation import RelationType

from dbt.adapters.upsert_kafka import embedded
from dbt.adapters.upsert_kafka import options as model_options
from dbt.adapters.upsert_kafka.credentials import EMBEDDED, UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import TopicSettings
from dbt.adapters.upsert_kafka.publish import pipeline, snapshots
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.spark import internals, session, settings
from dbt.adapters.upsert_kafka.spark.class_archive import LOG_ERRORS_ONLY, archive_path, former_archives
from dbt.adapters.upsert_kafka.spark.settings import JVM_OPTIONS
from dbt.adapters.upsert_kafka.state.record import Owner, Run, now_text

JVM_EXIT_SECONDS = 300
ROWS = snapshots.ONE_TASK + 1
"""So many that all ways of comparing load their classes."""


def write() -> Path:
    """Write the archive with the classes that a small project loads, unless it exists; returns its path."""
    archive = archive_path(settings.kafka_class_path())
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        new = Path(scratch) / "classes.jsa"
        # A separate process, because the JVM writes the archive when it exits; in the scratch folder, because Spark creates a
        # folder `artifacts` where it runs.
        command = [sys.executable, "-m", __name__, str(Path(scratch) / "project"), str(new)]
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not new.is_file():
            last = (done.stderr.strip().splitlines() or ["Java wrote no archive"])[-1]
            raise UpsertKafkaError(f"The class archive was not written: {last}")
        os.replace(new, archive)
    for former in former_archives(archive):
        former.unlink(missing_ok=True)
    return archive


def _publish(project: Path, archive: Path) -> None:
    """Publish a model in a new project, with a JVM that writes the classes that it loaded into `archive`."""
    project.mkdir()
    UpsertKafkaCredentials.project_root = project
    jvm = {JVM_OPTIONS: f"-XX:ArchiveClassesAtExit='{archive}' {LOG_ERRORS_ONLY}"}
    credentials = UpsertKafkaCredentials(schema="warm_up", bootstrap_servers=EMBEDDED, master="local[2]", spark=jvm)
    spark = session.get_session(credentials)
    spark.sql("CREATE DATABASE warm_up")
    spark.sql("CREATE TABLE warm_up.seed (id BIGINT, name STRING, share DOUBLE) USING parquet")
    spark.sql(f"INSERT INTO warm_up.seed SELECT id, concat('name ', id), id / 8 FROM range({ROWS})")
    request = Request(
        model="warm_up",
        options=model_options.parse("upsert_kafka", "warm_up", {"unique_key": "id"}),
        topic="warm_up",
        topic_settings=TopicSettings(),
        kafka=KafkaSettings.of(credentials),
        relation=UpsertKafkaRelation.create(schema="warm_up", identifier="users", type=RelationType.View),
        owner=Owner("warm_up", "warm_up", "warm_up", "users"),
        run=Run("warm_up", "localhost", now_text()),
    )
    changed = "SELECT id, if(id % 1000 = 0, 'changed', name) AS name, share FROM warm_up.seed"
    for select in ("SELECT * FROM warm_up.seed", "SELECT * FROM warm_up.seed", changed):
        pipeline.publish(spark, spark.sql(select), request)
    spark.sql("SELECT id FROM warm_up.users GROUP BY id HAVING count(*) > 1").collect()
    jvm_process = internals.jvm_process()
    session.stop()
    # The JVM exits when its stdin is closed.
    assert jvm_process.stdin is not None
    jvm_process.stdin.close()
    jvm_process.wait(JVM_EXIT_SECONDS)
    # The caller deletes the project; a broker that still ends would write files into it.
    embedded.stop(project)


if __name__ == "__main__":
    _publish(Path(sys.argv[1]), Path(sys.argv[2]))
