"""examples/with_clauses publishes what the documents with its WITH clauses describe."""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable

import fastavro

from tests.dbt_project import PACKAGE_ROOT, Project
from tests.services import read_topic

EXAMPLE = PACKAGE_ROOT / "examples" / "with_clauses"


def test_with_clauses_publish_what_their_documents_describe(dbt_project: Callable[..., Project], broker: str) -> None:
    project = dbt_project({})
    shutil.copytree(EXAMPLE, project.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("profiles.yml", ".upsert_kafka"))
    definition = (project.folder / "dbt_project.yml").read_text()
    project.write({"dbt_project.yml": definition.replace("profile: with_clauses", "profile: shop")})

    with project.one_process():
        project.succeed("build")

        cars = {r.key: r.value for r in read_topic(broker, "cars")}
        assert cars == {b"c1": b'c1,Ann,"Rolls, Royce",80', b"c2": b"c2,Bob,Volvo,55", b"c3": b"c3,,Fiat,90"}
        regions = {r.key: r.value for r in read_topic(broker, "pageviews_per_region")}
        # Avro as Flink writes it: a string is its length and its bytes, a number is zigzag-encoded, and 02 precedes a value that
        # is not null.
        assert regions == {b"\nnorth": b"\nnorth\x02\x06\x02\x04", b"\nsouth": b"\nsouth\x02\x04\x02\x04"}
        schemas = project.succeed("run-operation", "avro_schema", "--args", "{model: pageviews_per_region}")
        [schema] = re.findall(r"pageviews_per_region value: (.*)", schemas.output)
        rows = [fastavro.schemaless_reader(io.BytesIO(value), json.loads(schema), None) for value in regions.values() if value]
        assert {"user_region": "north", "pv": 3, "uv": 2} in rows

        events = read_topic(broker, "car_events")
        assert {r.value for r in events} == set(cars.values())
        assert {r.key for r in events} == {None}
        behaviors = {r.value for r in read_topic(broker, "user_behavior")}
        assert behaviors == {
            b'543462,1715,1464116,pv,"2017-11-26 01:00:00"',
            b'662867,2244074,1575622,buy,"2017-11-26 01:00:00.123"',
        }
        shown = project.succeed(
            "show", "--inline", "select sum(item_id) as n from {{ ref('user_behavior') }}", "--output", "json"
        )
    assert f'"n": {1715 + 2244074}' in shown.output
