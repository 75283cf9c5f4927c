"""A project with the core features of the adapter, and the expected records of its topics, for every kind of Spark."""

from __future__ import annotations

import json

from tests.counts import counts
from tests.dbt_project import Project
from tests.services import read_topic

# On the second day ten rows are missing, a hundred have another name, five are new.
SELECT = """\
{% set day = var('day', 1) %}
select cast(id as int) as id, concat('day ', if(id >= 100, {{ day }}, 1)) as name
from range({{ 0 if day == 1 else 10 }}, {{ 200 if day == 1 else 205 }})
"""
CHANGES = [(200, 0, 0, 0), (5, 100, 10, 90)]
CONFIGS = {
    "simple": "",
    "exact": ", sink_delivery_guarantee='exactly-once'",
    "placed": ", sink_partitioner='custom', sink_partitioner_class='placing.by_last_digit'",
}
FILES = {
    **{
        f"models/{name}.sql": f"{{{{ config(materialized='upsert_kafka', unique_key='id', partitions=3{more}) }}}}\n{SELECT}"
        for name, more in CONFIGS.items()
    },
    "models/per_day.sql": "{{ config(materialized='table') }} select name, count(*) as n from {{ ref('exact') }} group by name",
    "models/tests.yml": json.dumps({"models": [{"name": "placed", "columns": [{"name": "id", "data_tests": ["unique"]}]}]}),
    "tests/only_today.sql": "select * from {{ ref('per_day') }} where name <> 'day 1' and name <> 'day {{ var('day', 1) }}'",
    "tests/no_row_lost.sql": "select count(*) from {{ ref('exact') }} having count(*) <> {{ {1: 200, 2: 195}[var('day', 1)] }}",
    "placing.py": "def by_last_digit(key, value, partitions):\n    return int(chr(key[-2])) % partitions\n",
}


def run_two_days(project: Project) -> None:
    """Publish; then in another process run the tests, publish the changes, and run the tests again."""
    first = project.succeed("run")
    assert [counts(first.message(name)) for name in CONFIGS] == [CHANGES[0]] * 3
    _check(project, 1)
    later = ("--vars", "day: 2")
    with project.one_process():
        project.succeed("test")
        assert project.run("test", "--select", "no_row_lost", *later).exit_code == 1
        second = project.succeed("build", *later)
    assert [counts(second.message(name)) for name in CONFIGS] == [CHANGES[1]] * 3
    _check(project, 2)


def _check(project: Project, day: int) -> None:
    rows = range(200) if day == 1 else range(10, 205)
    expected = {f'{{"id":{i}}}': f'{{"id":{i},"name":"day {day if i >= 100 else 1}"}}' for i in rows}
    for name in CONFIGS:
        records = read_topic(project.profile["bootstrap_servers"], f"{project.profile['schema']}.{name}")
        latest = {record.key.decode(): record.value for record in records if record.key is not None}
        assert {key: value.decode() for key, value in latest.items() if value is not None} == expected
        # One record per row on the first day, one per change on the second.
        assert len(records) == (200 if day == 1 else 315)
        if name == "placed":
            assert all(record.partition == int(json.loads(record.key or b"")["id"]) % 10 % 3 for record in records)
