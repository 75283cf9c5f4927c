"""Streams with dbt: the documents' example as a stream, and `stream()` in other commands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import yaml

from tests.dbt_project import Project
from tests.functional.topic_writer import Message, write
from tests.services import end_offsets, list_topics, read_topic

SOURCE = """
{{ config(materialized='kafka_source', topic=var('views')) }}
select * from {{ kafka_topic() }}"""
PER_REGION = """
{{ config(materialized='upsert_kafka', unique_key='user_region', format='avro', topic=var('views') ~ '_per_region',
          trigger='available-now', sink_delivery_guarantee='exactly-once') }}
select user_region, count(*) as pv, {{ count_distinct('user_id') }} as uv
from {{ stream(ref('pageviews')) }} group by user_region"""
SCHEMA = """
models:
  - name: pageviews
    columns:
      - {name: user_id, data_type: bigint}
      - {name: user_region, data_type: string}
  - name: per_region
    columns:
      - {name: user_region, data_tests: [unique, not_null]}
unit_tests:
  - name: counts_users_once
    model: per_region
    given:
      - input: ref('pageviews')
        rows: [{user_id: 1, user_region: a}, {user_id: 1, user_region: a}, {user_id: 2, user_region: a}]
    expect:
      rows: [{user_region: a, pv: 3, uv: 2}]
"""
FILES = {"models/pageviews.sql": SOURCE, "models/per_region.sql": PER_REGION, "models/schema.yml": SCHEMA}
QUERY = "select user_region, pv, uv from {{ ref('per_region') }} order by 1"


def _views(broker: str, topic: str, events: list[tuple[int, str]]) -> None:
    write(broker, topic, [Message({"user_id": user, "user_region": region}) for user, region in events])


def _shown(project: Project, *arguments: str) -> list[dict[str, Any]]:
    output = project.succeed("--quiet", "show", "--inline", QUERY, "--output", "json", *arguments).output
    return json.loads(output[output.index("{") :])["show"]


def test_documents_example_as_a_stream(dbt_project: Callable[..., Project], broker: str, topic_name: str) -> None:
    project = dbt_project(FILES)
    views = ("--vars", json.dumps({"views": topic_name}))
    _views(broker, topic_name, [(user % 40, f"region {user % 4}") for user in range(200)])
    with project.one_process():
        first = project.succeed("run", *views)
        assert first.response("per_region")["events"] == 200
        project.succeed("test", *views)
        assert _shown(project, *views) == [{"user_region": f"region {n}", "pv": 50, "uv": 10} for n in range(4)]
        # The commands that do not publish read the relation itself.
        assert "stream_of__" not in project.succeed("compile", "--select", "per_region", *views).output
        end = end_offsets(broker, f"{topic_name}_per_region")
        project.succeed("run", "--empty", *views)
        assert end_offsets(broker, f"{topic_name}_per_region") == end

        _views(broker, topic_name, [(0, "region 0"), (1000, "region 0")])
        second = project.succeed("run", *views)
        assert (second.response("per_region")["events"], second.response("per_region")["written"]) == (2, 1)
        assert _shown(project, *views)[0] == {"user_region": "region 0", "pv": 52, "uv": 11}

        project.write({"models/per_region.sql": PER_REGION.replace("stream(ref('pageviews'))", "ref('pageviews')")})
        assert "reads no stream" in project.run("run", "--select", "per_region", *views).message("per_region")
        project.write({"models/per_region.sql": PER_REGION.replace("trigger='available-now',", "")})
        assert "has no trigger" in project.run("run", "--select", "per_region", *views).message("per_region")


LAST_VIEW = """
{{ config(materialized='upsert_kafka', unique_key='user_id', topic=var('views') ~ '_last_view', trigger='available-now',
          sink_delivery_guarantee='exactly-once', exclude_columns=['kafka_partition', 'kafka_offset'],
          checkpoint_location=var('checkpoints') if target.name == 'prod' else none) }}
select user_id, user_region, kafka_partition, kafka_offset from {{ stream(ref('pageviews')) }}"""
COUNTS = PER_REGION.replace("format='avro', ", "")


def _table(broker: str, topic: str, key: str, value: str) -> dict[Any, Any]:
    """The last value of each key, read by an independent client."""
    rows = [json.loads(record.value or b"") for record in read_topic(broker, topic)]
    return {row[key]: row[value] for row in rows}


def test_streams_in_an_empty_container_and_with_a_second_target(
    dbt_project: Callable[..., Project], broker: str, topic_name: str
) -> None:
    project = dbt_project({**FILES, "models/per_region.sql": COUNTS, "models/last_view.sql": LAST_VIEW})
    targets = {
        "dev": project.profile,
        "prod": {
            **project.profile,
            "topic_prefix": "prod.",
            "schema": f"{project.profile['schema']}_prod",
            "checkpoint_location": str(project.folder / "of_profile"),
        },
        "staging": {**project.profile, "schema": f"{project.profile['schema']}_staging"},
    }
    project.write({"profiles.yml": yaml.safe_dump({"shop": {"target": "dev", "outputs": targets}})})
    views = ("--vars", json.dumps({"views": topic_name, "checkpoints": (project.folder / "of_model").as_uri()}))
    counts, last = f"{topic_name}_per_region", f"{topic_name}_last_view"
    _views(broker, topic_name, [(1, "a"), (2, "a"), (3, "b")])
    project.succeed("run", *views)

    # A target of its own has topics, state and checkpoints of its own. One that has the topics of another is refused.
    _views(broker, topic_name, [(4, "c")])
    end = {topic: end_offsets(broker, topic) for topic in (counts, last)}
    second = project.succeed("run", "--target", "prod", *views)
    assert (second.response("per_region")["events"], second.response("last_view")["events"]) == (4, 4)
    refused = project.run("run", "--target", "staging", *views)
    assert "environment dev" in refused.message("per_region") and "environment dev" in refused.message("last_view")
    assert {topic: end_offsets(broker, topic) for topic in (counts, last)} == end
    assert _table(broker, f"prod.{counts}", "user_region", "pv") == {"a": 2, "b": 1, "c": 1}
    assert {topic for topic in list_topics(broker) if counts in topic} == {counts, f"prod.{counts}"}
    folders = [".upsert_kafka/checkpoints", "of_profile", "of_model"]
    found = [sorted(path.name for path in (project.folder / folder).iterdir()) for folder in folders]
    assert found == [sorted([counts, last]), [f"prod.{counts}"], [f"prod.{last}"]]

    # In an empty container the checkpoints are lost: a stateless stream has its offsets in the state record.
    shutil.rmtree(project.folder / ".upsert_kafka")
    _views(broker, topic_name, [(1, "c")])
    third = project.run("run", *views)
    assert third.exit_code == 1
    assert third.response("last_view")["events"] == third.response("last_view")["written"] == 2
    assert _table(broker, last, "user_id", "user_region") == {1: "c", 2: "a", 3: "b", 4: "c"}
    lost = third.message("per_region")
    assert "its checkpoint" in lost and "is gone" in lost and "--full-refresh" in lost
    assert end_offsets(broker, counts) == end[counts]
    project.succeed("run", "--full-refresh", "--select", "per_region", *views)
    assert _table(broker, counts, "user_region", "pv") == {"a": 2, "b": 1, "c": 2}
