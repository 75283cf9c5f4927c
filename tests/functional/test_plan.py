"""`upsert-kafka plan` and `apply`: a plan writes nothing, and an apply sends what the plan shows or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from tests.dbt_project import Outcome, Project
from tests.services import end_offsets, read_topic

MakeProject = Callable[..., Project]

PEOPLE = """{{ config(materialized='table') }}
select * from values (1, 'ann', 'a@x'), (2, 'bob', 'b@x'), (3, 'cem', 'c@x') as t(id, name, mail) where {{ var('stage', 1) }} = 1
union all select * from values (1, 'ann', 'a@x'), (2, 'bo', 'b@x'), (4, 'dee', 'd@x') as t(id, name, mail)
where {{ var('stage', 1) }} = 2"""
USERS = "{{ config(materialized='upsert_kafka', unique_key='id') }} select * from {{ ref('people') }}"
ON_TOP = """{{ config(materialized='upsert_kafka', unique_key='n') }} select count(*) as n from {{ ref('users') }}"""
THIRD = "{{ config(materialized='upsert_kafka', unique_key='n') }} select n from {{ ref('on_top') }}"
BY_VIEW = "{{ config(materialized='upsert_kafka', unique_key='name') }} select name from {{ ref('names') }}"
EVENTS = "{{ config(materialized='kafka') }} select name from {{ ref('people') }}"


HOOK = """\"{{ exceptions.raise_compiler_error('the hook ran') if execute and var('fails', false) else 'select 1' }}\""""


def plan(project: Project, *arguments: str, **kwargs: Any) -> tuple[dict[str, Any], Outcome]:
    """The models of plan.json by their names, and the command."""
    done = project.run("plan", "-o", str(project.folder / "out"), *arguments, program="upsert-kafka", **kwargs)
    written = json.loads((project.folder / "out/plan.json").read_text())
    return {model["name"]: model for model in written["models"]}, done


def apply(project: Project, **kwargs: Any) -> Outcome:
    return project.run("apply", str(project.folder / "out/plan.json"), program="upsert-kafka", **kwargs)


def stage(project: Project, number: int) -> None:
    project.succeed("run", "--select", "people", "--vars", f"stage: {number}")


class Topics:
    """The offsets of a project's topics."""

    def __init__(self, broker: str, project: Project) -> None:
        self.broker, self.schema = broker, project.profile["schema"]

    def end(self, model: str = "users") -> int:
        return sum(end_offsets(self.broker, f"{self.schema}.{model}").values())

    def config(self, name: str, model: str = "users") -> str:
        with KafkaSettings(self.broker).admin() as admin:
            return topics.config(admin, f"{self.schema}.{model}")[name]

    def exists(self, model: str = "users") -> bool:
        with KafkaSettings(self.broker).admin() as admin:
            return f"{self.schema}.{model}" in topics.names(admin)


def state_of(broker: str) -> dict[int, int]:
    """The end offsets of the state topic; empty if there is none."""
    with KafkaSettings(broker).admin() as admin:
        found = topics.describe(admin, "dbt-upsert-kafka.state")
    return dict(found.end) if found else {}


def files(folder: Path) -> dict[str, float]:
    """The files of a project that a plan must not change. The test itself removes run_results.json before each command."""
    parts = ("target", "models", "logs", ".upsert_kafka/catalog")
    return {
        str(p): p.stat().st_mtime
        for part in parts
        for p in (folder / part).rglob("*")
        if p.is_file() and p.name != "run_results.json"
    }


def test_apply_sends_exactly_what_the_plan_shows(dbt_project: MakeProject, broker: str) -> None:
    project = dbt_project(
        {
            "models/people.sql": PEOPLE,
            "models/users.sql": USERS,
            "models/names.sql": "select name from {{ ref('users') }}",
            "models/by_view.sql": BY_VIEW,
            "models/on_top.sql": ON_TOP,
            "models/third.sql": THIRD,
        }
    )
    with (project.folder / "dbt_project.yml").open("a") as file:
        file.write(f"on-run-start: [{HOOK}]\nmodels: {{shop: {{users: {{+pre-hook: [{HOOK}]}}}}}}\n")
    found = Topics(broker, project)
    with project.one_process():
        stage(project, 1)
        state_before = state_of(broker)
        before = files(project.folder)
        models, done = plan(project, "--exclude", "people", "--detailed-exitcode", "--vars", "fails: true")
        assert done.exit_code == 2, f"hooks do not run: {done.output}"
        # The first plan of an environment: models that read a topic which does not exist yet are marked.
        later = {name: model["error"] for name, model in models.items() if model["status"] == "not planned"}
        reads = "can't be planned yet: reads"
        assert later == {
            "on_top": f"{reads} users, which this plan publishes for the first time. Plan again after apply.",
            "by_view": f"{reads} names, which is built from users, which this plan publishes for the first time. "
            "After apply, build names (dbt run --select names) and plan again.",
            "third": "can't be planned yet: depends on on_top, which can't be planned yet. Plan again after apply.",
        }
        assert f"on_top: not planned\n  {later['on_top']}" in done.output
        assert not json.loads((project.folder / "out/plan.json").read_text())["complete"]
        assert not found.exists()
        assert files(project.folder) == before
        assert state_of(broker) == state_before
        users = models["users"]
        assert (users["status"], users["messages"], users["counts"]["insert"]) == ("changes", 3, 3)
        assert users["creates"] == {"cleanup.policy": "compact"}
        assert (users["environment"], users["topic"]) == ("dev", f"{found.schema}.users")

        hooked = apply(project)
        assert hooked.exit_code == 1 and "the hook ran" in hooked.output, hooked.output
        assert not found.exists()
        plan(project, "--exclude", "people")
        applied = apply(project)
        assert applied.exit_code == 0, applied.output
        assert f"Not published: on_top {later['on_top']}" in applied.output
        assert found.end() == 3

        stage(project, 2)
        drifted = "on_configuration_change='apply', topic_config={'segment.ms': '3600000'}, unique_key"
        project.write({"models/users.sql": USERS.replace("unique_key", drifted)})
        models, done = plan(project, "--select", "users", "on_top")
        assert done.exit_code == 0, done.output
        [drift] = models["users"]["drift"]
        assert (drift["setting"], drift["wanted"], drift["problem"]) == ("segment.ms", "3600000", "")
        assert found.config("segment.ms") == drift["now"], "a plan alters nothing"
        users, on_top = models["users"], models["on_top"]
        counts = {kind: users["counts"][kind] for kind in ("insert", "update", "delete", "unchanged")}
        assert counts == {"insert": 1, "update": 1, "delete": 1, "unchanged": 1}
        samples = {sample["kind"]: sample for sample in users["samples"]}
        assert samples["update"] == {
            "kind": "update",
            "key": {"id": 2},
            "old": {"id": 2, "name": "bob", "mail": "b@x"},
            "new": {"id": 2, "name": "bo", "mail": "b@x"},
            "changed": ["name"],
            "first": None,
        }
        assert samples["delete"]["old"]["name"] == "cem"
        assert (on_top["upstream"], on_top["waits"]) == (["users"], True), "its plan is of today's upstream"
        assert found.end() == 3

        applied = apply(project)
        assert applied.exit_code == 0, applied.output
        assert "Not published: on_top reads users" in applied.output
        assert found.end() == 3 + users["messages"] == 6
        assert found.config("segment.ms") == "3600000", "the drift is applied as planned"
        sent = [(r.key, r.value) for r in read_topic(broker, f"{found.schema}.users")][3:]
        assert {key for key, _ in sent} == {b'{"id":2}', b'{"id":3}', b'{"id":4}'}
        assert not found.exists("on_top")

        again = apply(project)
        assert again.exit_code == 1
        assert "model users: is not as it was planned: the topic was written to: the end offsets moved" in again.output
        assert found.end() == 6

        _, done = plan(project, "--select", "users", "--detailed-exitcode")
        assert done.exit_code == 0, done.output
        assert apply(project).exit_code == 0
        assert found.end() == 6


def test_apply_is_refused_if_anything_changed(dbt_project: MakeProject, broker: str) -> None:
    project = dbt_project({"models/people.sql": PEOPLE, "models/users.sql": USERS})
    found = Topics(broker, project)
    with project.one_process():
        project.succeed("run")
        stage(project, 2)

        def refused(reason: str, moved: int = 0) -> None:
            before = found.end()
            done = apply(project)
            assert done.exit_code == 1, done.output
            assert reason in done.output, done.output
            assert found.end() == before

        plan(project)
        project.write({"models/users.sql": USERS + " where id < 4"})
        refused("model users: is not as it was planned: the SELECT is another. Nothing was written. Run upsert-kafka plan again.")
        project.write({"models/users.sql": USERS.replace("unique_key", "max_deletes=3, unique_key")})
        refused("option max_deletes was not set, it is 3 now")
        project.write({"models/users.sql": USERS})
        stage(project, 1)
        refused("the rows are others: 3 messages were planned, 0 would be sent now")

        stage(project, 2)
        producer = KafkaProducer(bootstrap_servers=broker)
        producer.send(f"{found.schema}.users", key=b'{"id":9}', value=b"{}", partition=0).get(30)
        producer.close()
        refused("the topic was written to: the end offsets moved (partition 0 from 3 to 4)")

        project.write({"models/users.sql": USERS.replace("unique_key", "max_deletes=1, unique_key")})
        models, done = plan(project, "--detailed-exitcode")
        assert done.exit_code == 1, "not 2, which means changes"
        users = models["users"]
        assert users["status"] == "refused"
        assert "2 of the topic's 4 keys would be deleted" in users["refusals"][0]
        assert (users["counts"]["delete"], users["messages"]) == (2, 4), "the refusal does not hide the counts"
        refused("This plan is refused: 1 model would not be published: users (2 of the topic's 4 keys would be deleted")
        dry = project.run("run", "--select", "users", "--vars", "{upsert_kafka_dry_run: true}")
        assert dry.exit_code == 1
        assert "would delete 2 keys" in dry.output and "max_deletes=1 allows 1" in dry.output


def test_several_models_are_checked_before_the_first_is_published(dbt_project: MakeProject, broker: str) -> None:
    hidden = """{{ config(materialized='upsert_kafka', unique_key='mail', plan_mask=['mail', 'name'], value_format='csv') }}
select mail, name from {{ ref('people') }}"""
    project = dbt_project(
        {"models/people.sql": PEOPLE, "models/users.sql": USERS, "models/events.sql": EVENTS, "models/z.sql": hidden}
    )
    found = Topics(broker, project)
    with project.one_process():
        stage(project, 1)
        models, done = plan(project, "--select", "events", "users", "z")
        assert done.exit_code == 0, done.output
        assert models["events"]["counts"]["append"] == models["events"]["messages"] == 3
        assert {sample["new"]["name"] for sample in models["events"]["samples"]} == {"ann", "bob", "cem"}
        assert models["z"]["samples"][0]["key"] == {"mail": "(masked)"}
        assert models["z"]["samples"][0]["new"] == "(masked)"
        z = json.dumps(models["z"]) + done.output
        assert "a@x" not in z and "ann" not in z
        project.write({"models/z.sql": hidden + " where true"})
        refused = apply(project)
        assert refused.exit_code == 1
        assert "model z: is not as it was planned: the SELECT is another" in refused.output
        assert not any(found.exists(name) for name in ("users", "events", "z")), "no model of the plan is published"
        project.write({"models/z.sql": hidden})
        assert apply(project).exit_code == 0
        assert [found.end(name) for name in ("users", "events", "z")] == [3, 3, 3]


@pytest.mark.nightly
def test_exactly_once_and_new_processes(dbt_project: MakeProject, broker: str) -> None:
    """As users run it: each command in a process of its own, and the plan is applied by another one."""
    project = dbt_project(
        {
            "models/people.sql": PEOPLE,
            "models/users.sql": USERS.replace("unique_key", "sink_delivery_guarantee='exactly-once', unique_key"),
        }
    )
    found = Topics(broker, project)
    project.succeed("run", new_process=True)
    project.succeed("run", "--select", "people", "--vars", "stage: 2", new_process=True)
    before = found.end()
    models, done = plan(project, new_process=True)
    assert done.exit_code == 0, done.output
    assert found.end() == before
    done = apply(project, new_process=True)
    assert done.exit_code == 0, done.output
    sent = read_topic(broker, f"{found.schema}.users")
    assert len(sent) == 3 + models["users"]["messages"]
    assert apply(project, new_process=True).exit_code == 1
