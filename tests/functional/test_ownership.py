"""Owners and environments through dbt: targets of one project that share a cluster, and the run-operations that change owners."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import requests
import yaml

from tests.dbt_project import Outcome, Project
from tests.services import end_offsets, list_topics, read_topic

ORDERS = """
{{ config(materialized='upsert_kafka', unique_key='id', topic=var('topic')) }}
select cast(id as int) as id, '{{ target.name }}' as name from range(3)
"""
EVENTS = {
    "models/events.sql": """
        -- depends_on: {{ ref('orders') }}
        {{ config(materialized='kafka_source', topic=var('topic')) }} select * from {{ kafka_topic() }}
    """,
    "models/events.yml": "models: [{name: events, columns: [{name: id, data_type: int}, {name: name, data_type: string}]}]",
}
# A project's own macro does not know the prefix.
OWN_MACRO = """
{% macro generate_topic_name(custom_topic_name=none, node=none) %}{{ return(custom_topic_name or node.alias) }}{% endmacro %}
"""


def with_targets(project: Project, topic: str) -> Project:
    """Add the targets prod and ci: the same cluster and schema, and for ci a prefix and a suffix."""
    ci = {**project.profile, "environment": "ci_123", "topic_prefix": "ci_123.", "topic_suffix": "-v2"}
    outputs = {"dev": project.profile, "prod": project.profile, "ci": ci}
    return project.write(
        {
            "profiles.yml": yaml.safe_dump({"shop": {"target": "dev", "outputs": outputs}}),
            "dbt_project.yml": f"name: shop\nprofile: shop\nvars: {{topic: {topic}}}\n",
        }
    )


def operation(project: Project, target: str, name: str, **arguments: object) -> str:
    return project.succeed("run-operation", name, "-t", target, "--args", json.dumps(arguments)).output


def refused(project: Project, target: str) -> str:
    outcome = project.run("run", "-t", target, "-s", "orders")
    assert outcome.exit_code == 1, outcome.output
    return outcome.message("orders")


def published(project: Project, target: str) -> Outcome:
    return project.succeed("run", "-t", target, "-s", "orders")


def names(broker: str, topic: str) -> set[str]:
    """The values of the column `name` in the last record of each key, read by another Kafka client."""
    last = {record.key: json.loads(record.value or b"")["name"] for record in read_topic(broker, topic)}
    assert len(last) == 3
    return set(last.values())


def test_targets_that_share_a_cluster(dbt_project: Callable[..., Project], broker: str, topic_name: str) -> None:
    topic, of_ci = topic_name, f"ci_123.{topic_name}-v2"
    files = {"models/orders.sql": ORDERS, "macros/generate_topic_name.sql": OWN_MACRO, **EVENTS}
    project = with_targets(dbt_project(files), topic)
    with project.one_process():
        published(project, "prod")
        end = end_offsets(broker, topic)

        # Another environment is refused, with the owner and its last run.
        message = refused(project, "dev")
        schema = project.profile["schema"]
        assert f"topic '{topic}' is owned by model orders of project shop, environment prod, schema {schema}" in message
        assert "(last run: invocation " in message and "dbt run-operation adopt_topic --args '{model: orders}'" in message
        assert end_offsets(broker, topic) == end

        # With a prefix both publish. The source of the project reads the topic of its own environment.
        built = project.succeed("run", "-t", "ci")
        assert built.response("orders")["topic"] == of_ci
        assert names(broker, of_ci) == {"ci"}
        assert list(built.response("events")["slice"]) == [of_ci]
        assert end_offsets(broker, topic) == end

        # An environment that ends deletes the topics that it created, and no other.
        assert f"would be deleted: topic '{of_ci}'" in operation(project, "prod", "drop_environment", environment="ci_123")
        assert of_ci in list_topics(broker)
        dropped = operation(project, "prod", "drop_environment", environment="ci_123", dry_run=False)
        assert f"deleted: topic '{of_ci}'" in dropped and f"'{topic}'" not in dropped
        assert of_ci not in list_topics(broker) and end_offsets(broker, topic) == end
        again = operation(project, "prod", "drop_environment", environment="ci_123", dry_run=False)
        assert "environment 'ci_123' of project shop owns no topic" in again

        # The owner changes on request only.
        adopted = operation(project, "dev", "adopt_topic", model="orders")
        assert f"orders: topic '{topic}': model orders of project shop, environment prod, schema {schema} -> " in adopted
        assert "is its owner already" in operation(project, "dev", "adopt_topic", model="orders")
        published(project, "dev")
        assert names(broker, topic) == {"dev"}
        assert "environment dev" in refused(project, "prod")
        kept = operation(project, "dev", "drop_environment", environment="dev", dry_run=False)
        assert f"kept: topic '{topic}' existed before this environment's first run" in kept

        # Without a record nobody is the owner: a run may add, but not change what is there.
        assert "environment dev, schema " in operation(project, "prod", "forget_topic", topic=topic)
        assert "has no state record" in operation(project, "prod", "forget_topic", topic=topic)
        assert ", owner nobody" in operation(project, "prod", "list_topics")
        end = end_offsets(broker, topic)
        assert "has no owner in the state topic, and this run would change 3 keys and delete 0 keys" in refused(project, "prod")
        assert end_offsets(broker, topic) == end
        assert f"orders: topic '{topic}': nobody -> model orders" in operation(project, "prod", "adopt_topics")
        published(project, "prod")
        assert names(broker, topic) == {"prod"}
        listed = operation(project, "prod", "list_topics")
        assert f"owner model orders of project shop, environment prod, schema {schema}, last run invocation " in listed


@pytest.mark.nightly
def test_prefix_and_suffix_apply_to_subjects_and_transactional_ids(
    dbt_project: Callable[..., Project], registry: str, topic_name: str
) -> None:
    config = {"topic": topic_name, "format": "avro-confluent", "value_avro_confluent_subject": f"{topic_name}.rows"}
    settings = {"materialized": "upsert_kafka", "unique_key": "id", "sink_delivery_guarantee": "exactly-once", **config}
    files = {
        "models/orders.sql": "select 1 as id, 'ann' as name",
        "models/orders.yml": yaml.safe_dump({"models": [{"name": "orders", "config": settings}]}),
    }
    project = dbt_project(files, topic_prefix="ci.", topic_suffix=".v2", schema_registry={"url": registry})
    response = project.succeed("run").response("orders")
    assert response["transactional_id"] == f"dbt-upsert-kafka.ci.{topic_name}.v2"
    subjects = {name for name in requests.get(f"{registry}/subjects", timeout=30).json() if topic_name in name}
    assert subjects == {f"ci.{topic_name}.v2-key", f"ci.{topic_name}.rows.v2"}


def test_two_models_with_one_topic_are_refused(dbt_project: Callable[..., Project], broker: str, topic_name: str) -> None:
    config = f"{{{{ config(materialized='upsert_kafka', unique_key='id', topic='{topic_name}') }}}} select 1 as id"
    other = config.replace(topic_name, f"{topic_name}.other")
    project = dbt_project({"models/a.sql": config, "models/b.sql": config, "models/c.sql": other})
    with project.one_process():
        outcome = project.run("run")
        assert outcome.exit_code == 1, outcome.output
        assert f"model a: topic '{topic_name}' is also the topic of model b. Nothing was written." in outcome.message("a")
        assert f"model b: topic '{topic_name}' is also the topic of model a. Nothing was written." in outcome.message("b")
        assert outcome.response("c")["inserted"] == 1
        assert list_topics(broker) >= {f"{topic_name}.other"} and topic_name not in list_topics(broker)

        # A model that is removed leaves its topic, which is deleted on request.
        (project.folder / "models" / "c.sql").unlink()
        assert f"topic '{topic_name}.other': created for" in operation(project, "dev", "orphan_topics")
        assert f"dropped: topic '{topic_name}.other'" in operation(project, "dev", "drop_orphan_topics", dry_run=False)
        assert f"{topic_name}.other" not in list_topics(broker)
        assert "no orphans" in operation(project, "dev", "orphan_topics")
