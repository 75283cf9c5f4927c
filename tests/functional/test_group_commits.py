"""The offsets of a source's group are committed only by a command in which every consumer of the source succeeded."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml
from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition

from tests.dbt_project import Outcome, Project
from tests.functional.topic_writer import Message, write
from tests.services import read_topic

ARCHIVE = """
{{ config(materialized='kafka', format='csv', topic=var('events') ~ '_archive') }}
select n{% if var('broken', false) %} + raise_error('broken'){% endif %} as n from {{ ref('shown') }}"""
FILES = {
    "models/events.sql": "{{ config(materialized='kafka_source', topic=var('events'), commit_without=var('commit_without', none),"
    " properties={'group.id': var('events'), 'auto.offset.reset': 'earliest'}) }}\nselect n from {{ kafka_topic() }}",
    "models/events.yml": "models: [{name: events, columns: [{name: n, data_type: int, data_tests: [not_null]}]}]",
    # Both consumers read through a view and an ephemeral model.
    "models/staged.sql": "{{ config(materialized='ephemeral') }}\nselect * from {{ ref('events') }}",
    "models/shown.sql": "select * from {{ ref('staged') }}",
    "models/archive.sql": ARCHIVE,
    "models/stored.sql": "{{ config(materialized='table') }}\nselect * from {{ ref('shown') }}",
}
PROJECT = (
    "name: shop\nversion: '1.0'\nprofile: shop\nflags: {{send_anonymous_usage_stats: false}}\n"
    "on-run-end: '{{{{ commit_group_offsets(results) }}}}'\nvars: {{events: {topic}}}\n"
)


def committed(broker: str, topic: str) -> int | None:
    """The offset of the group that has the topic's name, as another client reads it."""
    admin = KafkaAdminClient(bootstrap_servers=broker)
    try:
        at = admin.list_group_offsets({topic: [TopicPartition(topic, 0)]})[topic][TopicPartition(topic, 0)]
        return at.offset if at.offset >= 0 else None
    finally:
        admin.close()


def commit(broker: str, topic: str, offset: int, metadata: str = "") -> None:
    """Commit an offset as another client does."""
    admin = KafkaAdminClient(bootstrap_servers=broker)
    try:
        admin.alter_group_offsets(topic, {TopicPartition(topic, 0): OffsetAndMetadata(offset, metadata, -1)})
    finally:
        admin.close()


def run(project: Project, *arguments: str, **variables: object) -> Outcome:
    return project.run(*arguments, *(["--vars", json.dumps(variables)] if variables else []))


@pytest.mark.nightly
def test_group_is_held_back_until_every_consumer_has_read(
    dbt_project: Callable[..., Project], broker: str, schema_name: str
) -> None:
    topic = f"{schema_name}.events"
    project = dbt_project({**FILES, "dbt_project.yml": PROJECT.format(topic=topic)})
    write(broker, topic, [Message({"n": n}) for n in range(3)])

    def assert_held(outcome: Outcome, at: int | None, *texts: str, exit_code: int = 0) -> None:
        assert outcome.exit_code == exit_code, outcome.output
        assert all(text in " ".join(outcome.output.split()) for text in texts), outcome.output
        assert committed(broker, topic) == at

    with project.one_process():
        not_published = f"source events: group '{topic}' is not committed by --empty, --sample or a dry run"
        assert_held(run(project, "run", "--empty"), None, not_published)
        assert_held(run(project, "run", "--sample", "1 day", "--select", "events"), None, not_published)
        assert_held(run(project, "run", "--select", "events", "shown", "archive", upsert_kafka_dry_run=True), None, not_published)
        assert_held(
            run(project, "run", "--select", "events"),
            None,
            f"source events: the offsets of group '{topic}' are not committed: model archive was not part of this command, "
            "model stored was not part of this command. The next run of the source reads the same messages again.",
        )
        assert_held(run(project, "build", broken=True), None, "not committed: model archive did not succeed.", exit_code=1)
        assert run(project, "build").exit_code == 0
        assert committed(broker, topic) == 3

        write(broker, topic, [Message({"n": 3})])
        assert_held(run(project, "run", "--exclude", "stored"), 3, "model stored was not part of this command")
        # A consumer that is released by name. The messages are read again.
        released = run(project, "run", "--exclude", "stored", commit_without=["stored", "stord"])
        assert "commit_without names 'stord', which does not select from this source; did you mean stored?" in released.output
        assert (released.exit_code, committed(broker, topic)) == (0, 4)
        # Consumers that run without their source read the same slice again: the group stays where it is.
        assert run(project, "run", "--select", "archive", "stored").exit_code == 0
        assert committed(broker, topic) == 4

        # The first command fails in both consumers. dbt retry runs them without the source, and commits what the source covers.
        write(broker, topic, [Message({"n": 4})])
        project.write({"models/shown.sql": "select * from nowhere, {{ ref('staged') }}"})
        failed = run(project, "run")
        assert_held(failed, 4, "model archive was skipped, model stored was skipped", exit_code=1)
        write(broker, topic, [Message({"n": 5})])
        project.write({"models/shown.sql": FILES["models/shown.sql"]})
        project.write({"failed/run_results.json": json.dumps(failed.run_results)})
        retried = run(project, "retry", "--state", "failed")
        assert retried.exit_code == 0 and "model.shop.events" not in {r["unique_id"] for r in retried.run_results["results"]}
        assert committed(broker, topic) == 5
        assert run(project, "run").response("events")["slice"] == {topic: {"0": [5, 6]}}
        assert committed(broker, topic) == 6

    values = [record.value for record in read_topic(broker, f"{topic}_archive")]
    assert values == [b"%d" % n for n in (0, 1, 2, 3, 3, 3, 4, 5)]


def test_group_of_another_environment_is_refused(dbt_project: Callable[..., Project], broker: str, schema_name: str) -> None:
    topic = f"{schema_name}.shared"
    files = {name: text for name, text in FILES.items() if name != "models/stored.sql"}
    project = dbt_project({**files, "dbt_project.yml": PROJECT.format(topic=topic)})
    outputs = {"dev": project.profile, "ci": {**project.profile, "schema": f"{schema_name}_ci"}}
    project.write({"profiles.yml": yaml.safe_dump({"shop": {"target": "dev", "outputs": outputs}})})
    write(broker, topic, [Message({"n": 1})])
    with project.one_process():
        project.succeed("run")
        assert committed(broker, topic) == 1
        write(broker, topic, [Message({"n": 2})])
        refused = project.run("run", "--target", "ci", "--vars", "{upsert_kafka_dry_run: 'false'}")
        text = " ".join(refused.output.split())
        assert refused.exit_code == 1 and f"group '{topic}' belongs to model events of project shop, environment dev" in text
        assert committed(broker, topic) == 1
        assert [record.value for record in read_topic(broker, f"{topic}_archive")] == [b"1"]
        # The source runs, something else commits, and the consumers run: the group is left to the other one.
        project.succeed("run", "--select", "events")
        commit(broker, topic, 0)
        moved = project.succeed("run", "--exclude", "events")
        assert "something else has committed offsets for it since the source ran" in " ".join(moved.output.split())
        assert committed(broker, topic) == 0
        commit(broker, topic, 1, metadata="dbt-upsert-kafka: model events of another project")
        # A command that commits nothing may read.
        project.succeed("run", "--target", "ci", "--empty", "--select", "events")
        assert committed(broker, topic) == 1
