"""`kafka_source` with dbt: a source read by an upsert_kafka and a kafka model, commits of a group, source freshness."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from kafka import KafkaAdminClient

from tests.counts import counts
from tests.dbt_project import Project
from tests.functional.topic_writer import Message, write
from tests.services import read_topic

COLUMNS = """
      - {name: user_id, data_type: bigint, data_tests: [not_null]}
      - {name: page_id, data_type: bigint}
      - {name: viewtime, data_type: timestamp_ntz}
      - {name: user_region, data_type: string}
      - {name: kafka_offset, description: The offset of the message.}"""
FILES = {
    "models/pageviews.sql": "{{ config(materialized='kafka_source', topic=var('views')) }}\nselect * from {{ kafka_topic() }}",
    "models/pageviews_per_region.sql": """
{{ config(materialized='upsert_kafka', unique_key='user_region', format='avro', topic=var('views') ~ '_per_region') }}
select user_region, count(*) as pv, count(distinct user_id) as uv from {{ ref('pageviews') }} group by user_region""",
    "models/new_pageviews.sql": """
{{ config(materialized='kafka_source', topic=var('views'),
          properties={'group.id': var('views'), 'auto.offset.reset': 'earliest'}) }}
select user_id, user_region from {{ kafka_topic() }}""",
    "models/archive.sql": """
{{ config(materialized='kafka', format='csv', topic=var('views') ~ '_archive') }}
select user_id, {% if var('broken', false) %}raise_error('broken'){% else %}user_region{% endif %} as user_region
from {{ ref('new_pageviews') }}
{% if is_incremental() %}where user_region <> 'never'{% endif %}""",
    "models/schema.yml": f"models:\n  - name: pageviews\n    columns:{COLUMNS}\n  - name: new_pageviews\n    columns:{COLUMNS}\n",
    "models/sources.yml": """
sources:
  - name: topics
    schema: "{{ target.schema }}"
    loaded_at_field: kafka_timestamp
    freshness: {error_after: {count: 1, period: hour}}
    tables: [{name: pageviews}]""",
}
PROJECT = "name: shop\nversion: '1.0'\nprofile: shop\nflags: {send_anonymous_usage_stats: false}\n"
HOOK = "on-run-end: '{{ commit_group_offsets(results) }}'\n"


def view(user: int, region: str) -> Message:
    return Message({"user_id": user, "page_id": 7, "viewtime": "2024-02-29 12:34:56.789", "user_region": region})


def committed(broker: str, group: str) -> int | None:
    admin = KafkaAdminClient(bootstrap_servers=broker)
    try:
        return next((at.offset for at in admin.list_group_offsets(group)[group].values()), None)
    finally:
        admin.close()


def test_group_is_committed_only_if_downstream_models_succeed(
    dbt_project: Callable[..., Project], broker: str, schema_name: str
) -> None:
    topic = f"{schema_name}.pageviews"
    project = dbt_project({**FILES, "dbt_project.yml": f"{PROJECT}{HOOK}vars: {{views: {topic}}}\n"})
    write(broker, topic, [view(1, "north"), view(2, "north"), view(3, "south")])

    with project.one_process():
        first = project.succeed("build")
        assert counts(first.message("pageviews_per_region")) == (2, 0, 0, 0)
        assert first.response("pageviews")["slice"] == {topic: {"0": [0, 3]}}
        assert counts(first.message("archive")) == (3,)
        assert committed(broker, topic) == 3

        write(broker, topic, [view(4, "south")])
        second = project.run("build", "--vars", json.dumps({"broken": True}))
        assert second.exit_code == 1 and "archive did not succeed" in second.output
        # `pageviews` has no group, so that it contains the new event. Only the changed region is published.
        assert counts(second.message("pageviews_per_region")) == (0, 1, 0, 1)
        assert committed(broker, topic) == 3

        third = project.succeed("build")
        assert counts(third.message("pageviews_per_region")) == (0, 0, 0, 2)
        assert third.response("new_pageviews")["slice"] == {topic: {"0": [3, 4]}}
        assert counts(third.message("archive")) == (1,)
        assert committed(broker, topic) == 4
        assert [record.value for record in read_topic(broker, f"{topic}_archive")][-1] == b"4,south"

        fresh = project.succeed("source", "freshness")
        assert "PASS freshness of topics.pageviews" in fresh.output
        shown: dict[str, Any] = json.loads(
            _json(project.succeed("show", "--select", "pageviews", "--output", "json", "--quiet").output)
        )
    assert len(shown["show"]) == 4 and shown["show"][0]["viewtime"].startswith("2024-02-29T12:34:56.789")


def _json(output: str) -> str:
    return output[output.index("{") :]
