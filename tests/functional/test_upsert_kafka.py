"""The materialization `upsert_kafka`, run by dbt in separate processes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from tests.dbt_project import Outcome, Project
from tests.services import Record, end_offsets, read_topic
from tests.tables import json_key

MakeProject = Callable[..., Project]

USERS = """
{{ config(materialized='upsert_kafka', unique_key='id', partitions=2, tags=['topics'],
          pre_hook="create table if not exists {{ target.schema }}.hooks (at string) using parquet",
          post_hook="insert into {{ target.schema }}.hooks values ('{{ this.identifier }}')",
          sql_header="set spark.dummy = 1;") }}
select id, name, cast(score as decimal(10, 2)) as score, since from {{ ref('active') }}
"""

SHOP = {
    "seeds/people.csv": """id,name,score,since,active
1,ann,1.50,2024-02-29,true
2,bob,2.25,2024-03-01,true
3,cem,3,2024-03-02,true
""",
    "models/active.sql": "{{ config(materialized='ephemeral') }} select * from {{ ref('people') }} where active",
    "models/users.sql": USERS,
    "models/names.sql": "{{ config(materialized='view') }} select name from {{ ref('users') }} where score > 2",
    "models/copy.sql": "{{ config(materialized='table') }} select * from {{ ref('users') }}",
    "models/schema.yml": """
models:
  - name: users
    description: People who may come in
    columns:
      - {name: id, data_tests: [unique, not_null]}
      - {name: name, data_tests: [not_null, {accepted_values: {arguments: {values: [ann, bob, bo, cem]}}}]}
""",
}


def records(broker: str, project: Project, model: str = "users") -> list[Record]:
    return read_topic(broker, f"{project.profile['schema']}.{model}")


def offsets(broker: str, project: Project) -> dict[int, int]:
    return end_offsets(broker, f"{project.profile['schema']}.users")


def counts(outcome: Outcome) -> tuple[int, int, int, int]:
    response = outcome.response("users")
    return tuple(response[name] for name in ("inserted", "updated", "deleted", "unchanged"))


@pytest.mark.nightly
def test_runs_and_tests_of_separate_processes_share_the_topic(dbt_project: MakeProject, broker: str) -> None:
    project = dbt_project(SHOP)
    with project.one_process():
        project.succeed("seed")
        first = project.succeed("run")
    assert counts(first) == (3, 0, 0, 0)
    assert first.response("users")["topic"] == f"{project.profile['schema']}.users"
    assert f"[topic {project.profile['schema']}.users: 3 new, 0 changed, 0 deleted, 0 unchanged in" in first.output
    assert {(r.key, r.value) for r in records(broker, project)} == {
        (json_key(1), b'{"id":1,"name":"ann","score":1.5,"since":"2024-02-29"}'),
        (json_key(2), b'{"id":2,"name":"bob","score":2.25,"since":"2024-03-01"}'),
        (json_key(3), b'{"id":3,"name":"cem","score":3,"since":"2024-03-02"}'),
    }
    # Another process: it knows of the first one only by the catalog.
    with project.one_process():
        tested = project.succeed("test")
        assert "PASS=4" in tested.output

        before = offsets(broker, project)
        assert counts(project.succeed("run")) == (0, 0, 0, 3)
        assert offsets(broker, project) == before, "an unchanged SELECT writes nothing"

        project.write(
            {
                "seeds/people.csv": SHOP["seeds/people.csv"]
                .replace("2,bob", "2,bo")
                .replace("cem,3,2024-03-02,true", "cem,3,2024-03-02,false")
            }
        )
        rebuilt = project.succeed("build", "--full-refresh", "--select", "people")
        assert rebuilt.exit_code == 0
        assert counts(project.succeed("run")) == (0, 1, 1, 1)
        new = [r for r in records(broker, project) if r.offset >= before[r.partition]]
        assert {(r.key, r.value) for r in new} == {
            (json_key(2), b'{"id":2,"name":"bo","score":2.25,"since":"2024-03-01"}'),
            (json_key(3), None),
        }

        shown = project.succeed("show", "--select", "users", "--output", "json")
        assert '"name": "bo"' in shown.output
        inline = project.succeed(
            "show", "--inline", "select count(*) as n, max(at) as at from {{ target.schema }}.hooks", "--output", "json"
        )
        assert '"at": "users"' in inline.output, "hooks ran"
        project.succeed("docs", "generate")
        nodes = json.loads((project.folder / "target" / "catalog.json").read_text())["nodes"]
        columns = {name: column["type"] for name, column in nodes["model.shop.users"]["columns"].items()}
        assert columns == {"id": "bigint", "name": "string", "score": "decimal(10,2)", "since": "date"}
        assert "PASS=4" in project.succeed("test").output


def test_concurrent_models_and_second_project_write_their_own_topics(
    dbt_project: MakeProject, broker: str, schema_name: str
) -> None:
    model = "{{{{ config(materialized='upsert_kafka', unique_key='id') }}}} select id, {} as n from range(50)"
    files = {f"models/m{n}.sql": model.format(n) for n in range(4)}
    files["models/schema.yml"] = "models: [{name: m3, config: {partitions: 1, topic_config: {min.compaction.lag.ms: 7}}}]"
    defaults = {"partitions": 3, "config": {"min.compaction.lag.ms": 5, "segment.ms": 600000}}
    project = dbt_project(files, topic_defaults=defaults)
    outcome = project.succeed("run")
    assert [len(end_offsets(broker, f"{schema_name}.m{n}")) for n in range(4)] == [3, 3, 3, 1]
    assert topic_config(broker, f"{schema_name}.m0") == {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": "5",
        "segment.ms": "600000",
    }
    assert topic_config(broker, f"{schema_name}.m3")["min.compaction.lag.ms"] == "7"
    assert [outcome.response(f"m{n}")["inserted"] for n in range(4)] == [50] * 4
    for n in range(4):
        assert {json.loads(r.value or b"")["n"] for r in records(broker, project, f"m{n}")} == {n}
    second = dbt_project({"models/m0.sql": model.format(7)}, name="second", schema=f"{schema_name}_second")
    assert second.succeed("run").response("m0")["inserted"] == 50
    assert len(records(broker, project, "m0")) == 50


def test_unreachable_broker_is_reported_without_traceback(dbt_project: MakeProject, tmp_path: Path) -> None:
    project = dbt_project(
        {"models/users.sql": "{{ config(materialized='upsert_kafka', unique_key='id') }} select 1 as id"},
        bootstrap_servers="127.0.0.1:9",
    )
    with project.one_process():
        debug = project.run("debug", timeout=120)
        assert debug.exit_code == 1
        assert "Spark 4." in debug.output and "Kafka and Avro jars: found" in debug.output
        assert "No Kafka broker answered at '127.0.0.1:9'" in debug.output
        outcome = project.run("run", timeout=120)
    assert outcome.exit_code == 1
    assert "No Kafka broker answered at '127.0.0.1:9'" in outcome.output
    assert "Traceback" not in outcome.output and "py4j" not in outcome.output.lower()


def test_wrong_models_are_reported_and_create_no_topic(dbt_project: MakeProject, broker: str, schema_name: str) -> None:
    config = "{{{{ config(materialized='upsert_kafka'{}) }}}} select 1 as id, 'a' as name"
    project = dbt_project(
        {
            "models/wrong_column.sql": config.format(", unique_key='idd'"),
            "models/no_key.sql": config.format(""),
            "models/bad_sql.sql": "{{ config(materialized='upsert_kafka', unique_key='id') }} select 1 as id, nope from range(1)",
            "models/bad_cast.sql": "{{ config(materialized='upsert_kafka', unique_key='id') }} select cast('x' as int) as id",
        }
    )
    outcome = project.run("run")
    assert outcome.exit_code == 1
    assert "unique_key: the SELECT has no column idd, its columns are id, name; did you mean id?" in outcome.output
    assert "unique_key: is required by upsert_kafka" in outcome.output
    assert "[UNRESOLVED_COLUMN" in outcome.output
    assert "[CAST_INVALID_INPUT]" in outcome.message("bad_cast"), "not a NULL key"
    assert "at org.apache.spark" not in outcome.output
    for model in ("wrong_column", "no_key", "bad_sql", "bad_cast"):
        with pytest.raises(AssertionError, match="does not exist"):
            records(broker, project, model)


def test_debug_reports_the_cluster(dbt_project: MakeProject) -> None:
    debug = dbt_project({}).succeed("debug", new_process=True)
    assert re.search(r"Kafka \d+\.\d+ or newer at \S+, cluster \S+, 1 broker\b", debug.output)


def test_incremental_empty_sample_and_dry_run(dbt_project: MakeProject, broker: str) -> None:
    project = dbt_project(
        {
            "models/users.sql": """
{{ config(materialized='upsert_kafka', unique_key='id', missing_keys='keep') }}
select id, '{{ is_incremental() }}' as slice from range(3)
{% if is_incremental() %} where id = 0 {% endif %}
""",
            "models/whole.sql": """
{{ config(materialized='upsert_kafka', unique_key='id', full_refresh=false) }} select id from range(2)
""",
        }
    )
    with project.one_process():
        empty = project.succeed("run", "--empty")
        assert empty.message("users") == "checked, nothing published"
        with pytest.raises(AssertionError, match="does not exist"):
            records(broker, project)

        assert counts(project.succeed("run")) == (3, 0, 0, 0)
        dry = project.succeed("run", "--vars", "{upsert_kafka_dry_run: true}")
        assert dry.message("users").endswith("users: 0 new, 1 changed, 0 deleted, 0 unchanged")
        assert dry.message("users").startswith("dry run, nothing published: topic ")
        assert '{"id":0,"slice":"False"} -> {"id":0,"slice":"True"}' in dry.output
        previewed = project.succeed("run-operation", "preview_changes", "--args", "{model: whole}")
        assert "whole: dry run, nothing published: topic " in previewed.output
        assert "whole: 0 new, 0 changed, 0 deleted, 2 unchanged" in previewed.output
        before = offsets(broker, project)
        assert project.succeed("run", "--sample", "1 day").message("users") == "checked, nothing published"
        assert offsets(broker, project) == before
        assert counts(project.succeed("run")) == (0, 1, 0, 0)
        again = project.succeed("run", "--full-refresh")
        assert counts(again) == (0, 3, 0, 0)
        assert again.response("whole")["unchanged"] == 2, "full_refresh=false overrides the flag"


@pytest.mark.nightly
def test_large_topic_is_read_once_and_not_collected(dbt_project: MakeProject, broker: str, tmp_path: Path) -> None:
    keys = 200_000
    log = tmp_path / "events"
    log.mkdir()
    events = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{log}", "spark.eventLog.rolling.enabled": "false"}
    events["spark.eventLog.compress"] = "false"
    model = (
        f"{{{{ config(materialized='upsert_kafka', unique_key='id', partitions=4) }}}} select id, uuid() as v from range({keys})"
    )
    project = dbt_project({"models/users.sql": model}, spark=events)
    with project.one_process():
        assert counts(project.succeed("run")) == (keys, 0, 0, 0)
        # After a write of another writer, the snapshot of the first run is not used.
        producer = KafkaProducer(bootstrap_servers=broker)
        producer.send(f"{project.profile['schema']}.users", key=b"unknown").get(timeout=30)
        producer.close()
        assert counts(project.succeed("run")) == (0, keys, 0, 0)
        assert counts(project.succeed("run")) == (0, keys, 0, 0)
    [file] = log.iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    tasks = [line for line in lines if line["Event"] == "SparkListenerTaskEnd"]
    assert sum(task["Task Metrics"]["Result Size"] for task in tasks) < 5_000_000, "the driver collects no rows"
    scans = {
        metric["accumulatorId"]
        for line in lines
        if line["Event"].endswith(("SparkListenerSQLExecutionStart", "SparkListenerSQLAdaptiveExecutionUpdate"))
        for node in plan_nodes(line["sparkPlanInfo"])
        if node["nodeName"].startswith("Scan KafkaRelation")
        for metric in node["metrics"]
        if metric["name"] == "number of output rows"
    }
    read = sum(int(a["Update"]) for task in tasks for a in task["Task Info"]["Accumulables"] if a["ID"] in scans)
    assert read == keys + 1, "by the second run only: the first created the topic, the third used the snapshot of the second"


def topic_config(broker: str, topic: str) -> dict[str, str]:
    """The settings of the topic itself, without defaults."""
    admin = KafkaAdminClient(bootstrap_servers=broker)
    try:
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        return {name: config["value"] for name, config in found["topic"][topic].items()}
    finally:
        admin.close()


def plan_nodes(plan: dict) -> list[dict]:
    return [plan, *(node for child in plan["children"] for node in plan_nodes(child))]
