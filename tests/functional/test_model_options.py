"""Options with dbt and a real broker: bad options write nothing, all spellings agree, properties reach the Kafka clients."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dbt_project import Outcome, Project
from tests.services import end_offsets, list_topics, read_topic

ROOT = Path(__file__).resolve().parents[2]
BAD_OPTIONS = yaml.safe_load((ROOT / "tests/unit/options/bad_options.yml").read_text())
MATERIALIZATIONS = {path.stem for path in (ROOT / "dbt/include/upsert_kafka/macros/materializations").glob("*.sql")}


def model(sql: str, name: str, **config: Any) -> dict[str, str]:
    """The files of a model with its config in YAML."""
    return {f"models/{name}.sql": sql, f"models/{name}.yml": yaml.safe_dump({"models": [{"name": name, "config": config}]})}


def statuses(outcome: Outcome) -> dict[str, str]:
    return {result["unique_id"].split(".")[-1]: result["status"] for result in outcome.run_results["results"]}


# A hook that lists the relations with the Spark session of the run.
LIST_RELATIONS = {
    "macros/list_relations.sql": """
        {% macro list_relations() %}
          {% if execute %}
            {% set found = run_query("show tables in " ~ target.schema).columns[1].values() %}
            {% do log("relations: " ~ found | join(" ") ~ ".", info=true) %}
          {% endif %}
        {% endmacro %}
    """,
    "dbt_project.yml": "name: shop\nprofile: shop\non-run-end: '{{ list_relations() }}'\n",
}


def _reaches_the_adapter(row: dict[str, Any]) -> bool:
    return row.get("materialized", "upsert_kafka") in MATERIALIZATIONS and not row.get("refused_by_dbt")


def test_bad_options_are_refused_before_topics_and_relations_are_created(
    dbt_project: Callable[..., Project], broker: str
) -> None:
    rows = [row for row in BAD_OPTIONS if _reaches_the_adapter(row)]
    assert len(rows) >= 60
    files = dict(LIST_RELATIONS)
    for row in rows:
        sink = (
            {"materialized": row["materialized"]}
            if "materialized" in row
            else {"materialized": "upsert_kafka", "unique_key": "id"}
        )
        config = sink | row["config"]
        files |= model("select 1 as id, 'a' as name, 2 as price", row["name"], **config)
    project = dbt_project(files)
    before = list_topics(broker)

    outcome = project.run("run")

    assert outcome.exit_code == 1, outcome.output
    wrong = {}
    for row in rows:
        message = outcome.message(row["name"])
        missing = [part for part in row["message_contains"] if part not in message]
        if missing or f"{row['name']}: " not in message:
            wrong[row["name"]] = message
    assert wrong == {}
    assert list_topics(broker) == before
    assert "relations: ." in outcome.output


CARS = "select id as car_id, 'owner ' || id as car_owner, 'brand' as car_brand, cast(id * 10 as int) as car_speed from range(50)"
DIALECTS: dict[str, dict[str, Any]] = {
    "cars_config": {
        "topic": "cars.config",
        "format": "csv",
        "csv_field_delimiter": "|",
        "update_mode": "upsert",
        "sink_delivery_guarantee": "at-least-once",
        "properties": {"linger.ms": 7},
    },
    "cars_yaml": {
        "topic": "cars.yaml",
        "key.format": "csv",
        "value.format": "csv",
        "csv.field-delimiter": "|",
        "sink.delivery-guarantee": "at-least-once",
        "properties.linger.ms": 7,
    },
    "cars_flink": {
        "with_options": {
            "connector": "upsert-kafka",
            "topic": "cars.flink",
            "properties.bootstrap.servers": "BROKER",
            "properties.linger.ms": "7",
            "key.format": "csv",
            "value.format": "csv",
            "key.csv.field-delimiter": "|",
            "value.csv.field-delimiter": "|",
            "sink.semantic": "at-least-once",
        }
    },
    "cars_text": {
        "with_options": """
            WITH (
              'connector' = 'upsert-kafka', 'topic' = 'cars.text',
              'properties.bootstrap.servers' = 'BROKER', 'properties.linger.ms' = '7',
              'format' = 'csv', 'csv.field-delimiter' = '|', 'value.fields-include' = 'ALL'
            )
        """
    },
    "cars_huawei": {
        "with_options": {
            "connector.type": "upsert-kafka",
            "connector.version": "0.11",
            "connector.topic": "cars.huawei",
            "connector.properties.bootstrap.servers": "BROKER",
            "connector.properties.linger.ms": "7",
            "format.type": "csv",
            "format.field-delimiter": "|",
            "update-mode": "upsert",
        }
    },
}


def test_every_spelling_of_a_model_publishes_the_same_bytes(dbt_project: Callable[..., Project], broker: str) -> None:
    files: dict[str, str] = {}
    for name, config in DIALECTS.items():
        here = yaml.safe_load(yaml.safe_dump(config).replace("BROKER", broker))
        files |= model(CARS, name, materialized="upsert_kafka", unique_key="car_id", partitions=3, **here)
    dbt_project(files).succeed("run")

    published = {
        name: sorted((r.partition, r.key or b"", r.value) for r in read_topic(broker, name.replace("_", ".")))
        for name in DIALECTS
    }

    assert len(published["cars_config"]) == 50
    assert b'7|"owner 7"|"brand"|70' in {value for _, _, value in published["cars_config"]}
    assert {name for name, records in published.items() if records != published["cars_config"]} == set()


def test_model_config_wins_over_schema_yaml_and_schema_yaml_over_project(
    dbt_project: Callable[..., Project], broker: str, schema_name: str
) -> None:
    in_model = "{{ config(value_fields_include='EXCEPT_KEY') }} select 1 as id, 'a' as name"
    in_yaml = {"materialized": "upsert_kafka", "unique_key": "id", "partitions": 2, "value_fields_include": "ALL"}
    in_project = {"+partitions": 5, "+value_fields_include": "ALL", "+topic_config": {"retention.ms": 1000000}}
    project = dbt_project(model(in_model, "users", **in_yaml))
    project.write({"dbt_project.yml": yaml.safe_dump({"name": "shop", "profile": "shop", "models": {"shop": in_project}})})
    project.succeed("run")

    topic = f"{schema_name}.users"
    assert [(r.key, r.value) for r in read_topic(broker, topic)] == [(b'{"id":1}', b'{"name":"a"}')]
    assert set(end_offsets(broker, topic)) == {0, 1}


def test_properties_reach_the_client_that_has_them(dbt_project: Callable[..., Project]) -> None:
    # A producer with max.request.size=200 and a consumer with max.poll.records=0 fail.
    rows = "select 1 as id, repeat('x', 1000) as text"
    upsert = {"materialized": "upsert_kafka", "unique_key": "id"}
    project = dbt_project(
        {
            **model(rows, "for_the_producer", **upsert, properties={"max.request.size": 200}),
            **model(rows, "for_the_reader", **upsert, properties={"max.poll.records": 0}),
            **model(rows, "misspelt", **upsert, properties={"linger.msec": 200}),
        }
    )

    with project.one_process():
        first = project.run("run")
        again = project.run("run", "--select", "for_the_reader", "--full-refresh")

    # The first run finds an empty topic and starts no consumer. An unchanged run would not either; a full refresh does.
    assert statuses(first) == {"for_the_producer": "error", "for_the_reader": "success", "misspelt": "success"}
    assert "max.request.size" in first.message("for_the_producer")
    assert statuses(again) == {"for_the_reader": "error"}
    assert "max.poll.records" in again.message("for_the_reader")
    assert "misspelt: properties linger.msec: no Kafka client has this property; did you mean linger.ms?" in first.output


def test_parse_starts_neither_spark_nor_kafka(
    dbt_project: Callable[..., Project], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fake java that records its arguments and fails.
    java, started = tmp_path / "jvm" / "bin" / "java", tmp_path / "started"
    java.parent.mkdir(parents=True)
    java.write_text(f'#!/bin/sh\necho "$@" >> "{started}"\nexit 1\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")
    project = dbt_project(
        model("select 1 as id", "users", materialized="upsert_kafka", unique_key="id"), bootstrap_servers="embedded"
    )

    project.succeed("parse")

    assert not started.exists()
    assert not (project.folder / ".upsert_kafka").exists()
    assert project.run("run").exit_code != 0
    assert started.exists(), "the fake java is used when a JVM is started"
