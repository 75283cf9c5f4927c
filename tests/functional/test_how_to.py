"""The pages of docs/how-to: their files are written, their commands run and their outputs compared, in a warm dbt process.

The pages use the schema `analytics` and the brokers `broker-1:9092,broker-2:9092`. Here these are the test's schema and broker.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import NewTopic

from tests.dbt_project import Project
from tests.documented import DOCS, Commands, File, missing, steps
from tests.services import read_topic

PAGES = DOCS / "how-to"
BROKERS = "broker-1:9092,broker-2:9092"
# Pages that delete the folder of the catalog or set variables, so that each command needs a Spark of its own.
SEPARATE_COMMANDS = {"recovery", "ci-and-containers"}
# The pages that are run before each push. The others are nightly.
ALWAYS = {"test-before-publishing"}


class Reader:
    """Somebody who follows a page in a project."""

    def __init__(self, project: Project, broker: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project, self.broker, self.schema, self.monkeypatch = project, broker, schema, monkeypatch

    def here(self, text: str) -> str:
        return text.replace("analytics", self.schema).replace(BROKERS, self.broker)

    def write(self, file: File) -> None:
        text = self.here(file.text)
        if file.path == "profiles.yml":
            profiles = yaml.safe_load(text)
            for target in profiles["shop"]["outputs"].values():
                target |= {
                    name: self.project.profile[name] for name in ("master", "spark", "jars") if name in self.project.profile
                }
            text = yaml.safe_dump(profiles)
        self.project.write({file.path: text})

    def run(self, commands: Commands) -> str:
        printed = ""
        for number, line in enumerate(commands.lines, 1):
            exit_code, output = self.run_line(self.here(line))
            printed += output
            fails = commands.fails and number == len(commands.lines)
            assert (exit_code != 0) == fails, f"{line}: {exit_code}\n{output}"
        return printed

    def run_line(self, line: str) -> tuple[int, str]:
        program, *arguments = shlex.split(line)
        if program == "dbt":
            outcome = self.project.run(*arguments)
            return outcome.exit_code, outcome.output
        if program == "export":
            self.monkeypatch.setenv(*arguments[0].split("=", 1))
            return 0, ""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            line, shell=True, cwd=self.project.folder, env={**self.project.environment(), "PATH": path, "COLUMNS": "300"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout


def flink_wrote(reader: Reader) -> None:
    """What Flink's upsert-kafka connector writes for the two rows of the page, Europe with an older value."""
    admin = KafkaAdminClient(bootstrap_servers=reader.broker)
    admin.create_topics([NewTopic(f"{reader.schema}.pageviews_per_region", num_partitions=2, replication_factor=1)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=reader.broker)
    for region, row in (("Asia", '"pv":3,"uv":2'), ("Europe", '"pv":4,"uv":4')):
        key, value = f'{{"user_region":"{region}"}}', f'{{"user_region":"{region}",{row}}}'
        producer.send(f"{reader.schema}.pageviews_per_region", key=key.encode(), value=value.encode())
    producer.close()


def billing_reads(reader: Reader) -> None:
    consumer = KafkaConsumer(bootstrap_servers=reader.broker, group_id="billing")
    consumer.commit({TopicPartition(f"{reader.schema}.orders_v1", 0): OffsetAndMetadata(0, "", -1)})
    consumer.close()


# What others do before a command of a page.
BEFORE: dict[tuple[str, str], Callable[[Reader], None]] = {
    ("adopt-a-flink-topic", "dbt run --vars '{upsert_kafka_dry_run: true}'"): flink_wrote,
    ("breaking-changes", "upsert-kafka topics"): billing_reads,
}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[] if page.stem in ALWAYS else [pytest.mark.nightly])
        for page in sorted(PAGES.glob("*.md"))
    ],
)
def test_page_works_as_written(
    page: Path, dbt_project: Callable[..., Project], broker: str, schema_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(dbt_project({}), broker, schema_name, monkeypatch)
    with nullcontext() if page.stem in SEPARATE_COMMANDS else reader.project.one_process():
        for step in steps(page):
            if isinstance(step, File):
                reader.write(step)
                continue
            assert isinstance(step, Commands) and step.terminal is None
            if others := BEFORE.get((page.stem, step.lines[0])):
                others(reader)
            printed = reader.run(step)
            shown = reader.here(step.output or "")
            assert not missing(shown, printed), f"{missing(shown, printed)} is not in\n{printed}"


@pytest.mark.nightly
def test_compaction_removes_the_records_of_a_deleted_person(
    dbt_project: Callable[..., Project], broker: str, schema_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third step of delete-personal-data, with a lag of a second instead of a day."""
    reader = Reader(dbt_project({}), broker, schema_name, monkeypatch)
    with reader.project.one_process():
        for step in steps(PAGES / "delete-personal-data.md"):
            if isinstance(step, File):
                reader.write(File(step.path, step.text.replace("86400000", "1000")))
            elif isinstance(step, Commands):
                # The lag must have passed.
                time.sleep(2)
                reader.run(Commands(tuple(line for line in step.lines if line.startswith("dbt"))))
        keys: set[bytes | None] = set()
        # The cleaner looks for work every 15 seconds.
        for _ in range(60):
            keys = {record.key for record in read_topic(broker, f"{schema_name}.users") if record.value is not None}
            if b'{"user_id":1}' not in keys:
                break
            time.sleep(1)
    assert keys == {b'{"user_id":2}'}
