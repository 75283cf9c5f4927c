"""Every command in a container of its own: a new process in a project folder that has none of our files.

What a command needs to know about earlier ones is in the state topic. Topics are read by another Kafka client.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.counts import counts
from tests.dbt_project import Outcome, Project
from tests.services import end_offsets, read_topic

MakeProject = Callable[..., Project]

FILES = {
    "models/orders.sql": """
{{ config(materialized='upsert_kafka', unique_key='Order_id', on_schema_change=var('on_change', 'ignore'),
          grants={'select': ['User:reader']}, persist_docs={'relation': true, 'columns': true}) }}
select id as Order_id, concat('o', id) as `the name`, named_struct('a b', id) as nested
  {% if var('new_column', false) %}, 1 as added{% endif %}
from range({{ var('orders', 3) }})""",
    "models/recent.sql": """
{{ config(materialized='upsert_kafka', unique_key='k_id', key_fields_prefix='k_', value_fields_include='EXCEPT_KEY',
          missing_keys='keep', format='csv', csv_null_literal='n/a') }}
select Order_id as k_id, cast(null as string) as note, '{{ is_incremental() }}' as slice from {{ ref('orders') }}
{% if is_incremental() %}where Order_id > (select max(k_id) from {{ this }}){% endif %}""",
    "models/events.sql": """
{{ config(materialized='kafka', format='avro') }}
select Order_id, `the name` as label from {{ ref('orders') }}
{% if is_incremental() %}where Order_id > (select max(Order_id) from {{ this }}){% endif %}""",
    "models/codes.sql": """
{{ config(materialized='upsert_kafka', unique_key=var('key', 'code')) }}
select 'a' as code, 'b' as other""",
    "models/source.sql": """
{{ config(materialized='kafka_source', topic=target.schema ~ '.orders') }}
select * from {{ kafka_topic() }}""",
    "models/names.sql": "{{ config(materialized='view') }} select `the name` from {{ ref('orders') }}",
    "models/schema.yml": """
models:
  - name: orders
    description: All orders.
    columns:
      - {name: Order_id, description: The number., data_tests: [unique, not_null]}
  - name: recent
    columns: [{name: k_id, data_tests: [unique, {relationships: {arguments: {to: "ref('orders')", field: Order_id}}}]}]
  - name: events
    columns: [{name: Order_id, data_tests: [unique]}]
  - name: source
    columns: [{name: Order_id, data_type: bigint}]
""",
}
TOPIC_MODELS = ("orders", "recent", "events", "codes")


class Containers:
    """Runs each dbt command in a new process and an empty project folder."""

    def __init__(self, project: Project, broker: str) -> None:
        self.project, self.broker = project, broker
        self.schema = project.profile["schema"]

    def run(self, *arguments: str) -> Outcome:
        for folder in (".upsert_kafka", "target", "logs"):
            shutil.rmtree(self.project.folder / folder, ignore_errors=True)
        return self.project.run(*arguments, new_process=True)

    def succeed(self, *arguments: str) -> Outcome:
        outcome = self.run(*arguments)
        assert outcome.exit_code == 0, outcome.output
        return outcome

    def offsets(self) -> dict[str, dict[int, int]]:
        return {model: end_offsets(self.broker, f"{self.schema}.{model}") for model in TOPIC_MODELS}


@pytest.fixture
def containers(dbt_project: MakeProject, broker: str) -> Containers:
    return Containers(dbt_project(FILES), broker)


def log_events(project: Project, folder: Path) -> None:
    folder.mkdir()
    settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder.as_uri(), "spark.eventLog.compress": "false"}
    project.profile["spark"].update(settings)
    project.save_profile()


def scans(event_log: Path, topic: str) -> int:
    """In how many plans of a command's Spark application a topic is read."""
    lines = [line for file in event_log.rglob("*") if file.is_file() for line in file.read_text().splitlines()]
    plans = [json.loads(line)["physicalPlanDescription"] for line in lines if "SparkListenerSQLExecutionStart" in line]
    return sum("KafkaRelation" in plan and topic in plan and "CreateViewCommand" not in plan for plan in plans)


def test_commands_of_new_containers_continue_where_the_last_one_ended(containers: Containers, tmp_path: Path) -> None:
    schema = containers.schema
    first = containers.succeed("run", "--select", *TOPIC_MODELS)
    assert [counts(first.message(model)) for model in TOPIC_MODELS] == [(3, 0, 0, 0), (3, 0, 0, 0), (3,), (1, 0, 0, 0)]

    tested = containers.succeed("test", "--select", *TOPIC_MODELS)
    assert "PASS=5" in tested.output

    log_events(containers.project, tmp_path / "event_log")
    second = containers.succeed("run", "--select", *TOPIC_MODELS, "--vars", "{orders: 5}")
    assert [counts(second.message(model)) for model in TOPIC_MODELS] == [(2, 0, 0, 3), (2, 0, 0, 0), (2,), (0, 0, 0, 1)]
    assert "grants have no effect, because the cluster has no authorizer" in second.output
    rows = {record.key: record.value for record in read_topic(containers.broker, f"{schema}.recent")}
    assert rows == {f"{i}".encode(): f"n/a,{i > 2}".encode() for i in range(5)}, "is_incremental() is true and `this` is readable"
    assert scans(tmp_path / "event_log", f"{schema}.orders") > 0
    assert scans(tmp_path / "event_log", f"{schema}.codes") == 0, "an unchanged run reads nothing of the topic"

    before = containers.offsets()
    changed = "{orders: 6, on_change: fail, new_column: true, key: other}"
    refused = containers.run("run", "--select", "orders", "codes", "--vars", changed)
    assert refused.exit_code == 1
    assert "differ from those published (added: added) and on_schema_change='fail'" in refused.message("orders")
    assert "the key changed from code (string) to other (string)" in refused.message("codes")
    assert containers.offsets() == before, "refused runs write nothing"

    shown = containers.succeed("show", "--inline", "select * from {{ ref('orders') }} where order_id = 4", "--output", "json")
    assert '"Order_id": 4' in shown.output and '"the name": "o4"' in shown.output
    created = sorted(path.name for path in (containers.project.folder / ".upsert_kafka" / "catalog" / schema).iterdir())
    assert created == ["database.json", "orders.table.json"], "a view is created only if a statement needs it"


@pytest.mark.nightly
def test_docs_defer_and_relations_that_are_not_restored(containers: Containers, tmp_path: Path) -> None:
    project, schema = containers.project, containers.schema
    containers.succeed("run", "--select", *TOPIC_MODELS)
    shutil.copytree(project.folder / "target", tmp_path / "state")

    containers.succeed("docs", "generate")
    catalog = json.loads((project.folder / "target" / "catalog.json").read_text())["nodes"]
    assert set(catalog) == {f"model.shop.{model}" for model in TOPIC_MODELS}
    orders = catalog["model.shop.orders"]
    assert orders["metadata"]["comment"] == "All orders." and orders["columns"]["Order_id"]["comment"] == "The number."
    assert orders["columns"]["nested"]["type"].lower() == "struct<a b:bigint>"
    assert orders["stats"]["topic"]["value"] == f"{schema}.orders"
    assert list(catalog["model.shop.events"]["columns"])[:3] == ["Order_id", "label", "kafka_topic"]

    missing = containers.run("show", "--inline", "select * from {{ ref('source') }}")
    assert missing.exit_code != 0
    assert "It is built by model source (kafka_source), whose relation is kept in the project folder only." in missing.output
    assert "Build it here first: dbt run --select source" in missing.output and "Verify the spelling" not in missing.output

    project.profile |= {"schema": f"{schema}_dev", "environment": "dev2", "topic_prefix": "dev."}
    project.save_profile()
    deferred = containers.succeed("run", "--select", "recent", "--defer", "--state", str(tmp_path / "state"))
    assert counts(deferred.message("recent")) == (3, 0, 0, 0)
    assert len(read_topic(containers.broker, f"dev.{schema}_dev.recent")) == 3, "published from the deferred relation"
