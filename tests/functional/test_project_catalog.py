"""The project's catalog: ordinary relations outlive the process, several processes use one project, kills do no harm."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.dbt_project import DbtServer, Project

MakeProject = Callable[..., Project]

FILES = {
    "seeds/raw.csv": "id,name\n1,ann\n2,bob\n",
    "models/totals.sql": """
{{ config(materialized='table', partition_by='name', tblproperties={'made.by': 'us'}) }} select id, name from {{ ref('raw') }}""",
    "models/names.sql": "{{ config(materialized='view') }} select name from {{ ref('totals') }}",
    "models/upper_names.sql": "{{ config(materialized='view') }} select upper(name) as name from {{ ref('names') }}",
    "models/history.sql": """
{{ config(materialized='incremental') }} select id, '{{ is_incremental() }}' as again from range(1)""",
    "models/schema.yml": "models: [{name: totals, columns: [{name: id, data_tests: [unique, not_null]}]}]",
}
SHOWN = """
select u.name, h.again, r.id from {{ ref('upper_names') }} u
join {{ ref('raw') }} r on upper(r.name) = u.name cross join {{ ref('history') }} h order by 1, 2"""
ROWS = [[name, again, number] for number, name in ((1, "ANN"), (2, "BOB")) for again in ("False", "True")]
SNAPSHOT = {
    "snapshots/seen.sql": """
{% snapshot seen %}{{ config(unique_key='id', strategy='check', check_cols='all', target_schema=target.schema) }}
select * from {{ ref('raw') }}{% endsnapshot %}"""
}


def shown(output: str) -> list[list[object]]:
    """The rows that `dbt show --output json` printed."""
    return [list(row.values()) for row in json.loads(output[output.index("{\n") : output.rindex("}") + 1])["show"]]


def test_ordinary_relations_outlive_the_process(dbt_project: MakeProject) -> None:
    project = dbt_project(FILES)
    project.succeed("build")
    project.succeed("run", "--select", "history")
    assert "PASS=2" in project.succeed("test").output
    output = project.succeed("show", "--inline", SHOWN, "--output", "json", "--limit", "9").output
    assert shown(output) == ROWS
    project.succeed("run", "--select", "totals", "--full-refresh", new_process=True)
    files = sorted(path.name for path in (project.folder / ".upsert_kafka" / "catalog").glob("*/*"))
    relations = ("history", "names", "raw", "totals", "upper_names")
    assert files == ["database.json", *(f"{name}.table.json" for name in relations)]


@pytest.mark.nightly
def test_delta_tables_and_snapshots_outlive_the_process(dbt_project: MakeProject) -> None:
    project = dbt_project({**FILES, **SNAPSHOT}, file_format="delta")
    project.succeed("build")
    project.write({"seeds/raw.csv": "id,name\n1,ann\n2,bo\n"})
    project.succeed("build", "--exclude", "history")
    project.succeed("run", "--select", "history")
    output = project.succeed("show", "--inline", SHOWN, "--output", "json", "--limit", "9").output
    assert shown(output) == [[str(name).replace("BOB", "BO"), *rest] for name, *rest in ROWS]
    output = project.succeed("show", "--inline", "select count(*) as n from {{ ref('seen') }}", "--output", "json").output
    assert shown(output) == [[3]], "the snapshot has the old row too"


SIDES = ("left", "right")
BOTH = {
    f"models/{side}_{kind}.sql": text.replace("SIDE", side)
    for side in SIDES
    for kind, text in {
        "rows": "{{ config(materialized='table') }} select id, {{ var('round') }} as round from range(3)",
        "view": "{{ config(materialized='view') }} select round from {{ ref('SIDE_rows') }}",
        "topic": "{{ config(materialized='upsert_kafka', unique_key='id') }} select * from {{ ref('SIDE_rows') }}",
    }.items()
}
TESTED = ["left_rows", "left_topic", "right_rows", "right_topic"]
BOTH["models/schema.yml"] = json.dumps(
    {"models": [{"name": name, "columns": [{"name": "id", "data_tests": ["unique"]}]} for name in TESTED]}
)


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.nightly)])
def test_two_processes_build_test_and_show_different_models_of_one_project(dbt_project: MakeProject, rounds: int) -> None:
    project = dbt_project(BOTH)
    servers = {side: DbtServer() for side in SIDES}

    def run(side: str, *arguments: str) -> str:
        own = ["--target-path", f"target_{side}", "--log-path", f"logs_{side}"]
        started = servers[side]._process is not None
        exit_code, output = servers[side].run(project, ["dbt", *project._here(arguments), *own], 300, new_spark=not started)
        assert exit_code == 0, f"{side}: {output}"
        return output

    try:
        with ThreadPoolExecutor(2) as pool:
            for number in range(rounds):
                variables = ["--vars", f"{{round: {number}}}"]
                built = list(pool.map(lambda side: run(side, "build", "--select", f"{side}_rows+", *variables), SIDES))  # noqa: B023
                assert all("PASS=5" in output for output in built)
                for kind in ("view", "topic"):
                    query = f"select distinct round from {{{{ ref('OTHER_{kind}') }}}}"
                    others = [
                        pool.submit(run, me, "show", "--inline", query.replace("OTHER", other), "--output", "json", *variables)
                        for me, other in (SIDES, SIDES[::-1])
                    ]
                    assert [shown(other.result()) for other in others] == [[[number]]] * 2, "each sees what the other built"
    finally:
        for server in servers.values():
            server.stop()


@pytest.mark.nightly
def test_killed_process_leaves_a_project_that_the_next_run_can_use(dbt_project: MakeProject) -> None:
    sleep = "reflect('java.lang.Thread', 'sleep', cast({{ var('millis', 0) }} as bigint))"
    project = dbt_project(
        {
            "models/slow.sql": f"{{{{ config(materialized='table') }}}} select id, {sleep} as slept from range(2)",
            "models/ok.sql": "{{ config(materialized='table') }} select 1 as id",
        }
    )
    project.succeed("run", "--select", "ok", new_process=True)
    folder = project.folder / ".upsert_kafka"
    process = project.start("run", "--select", "slow", "--vars", "{millis: 120000}")
    try:
        until = time.monotonic() + 120
        while not list(folder.glob("warehouse/*.db/slow/_temporary")):
            assert time.monotonic() < until and process.poll() is None, process.stdout and process.stdout.read()
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    half_written = next(folder.glob("catalog/*/ok.table.json")).with_name(".slow.table.json.1.1")
    half_written.write_text('{"version": 1, "na')
    project.succeed("run", new_process=True)
    output = project.succeed("show", "--inline", "select count(*) as n from {{ ref('slow') }}", "--output", "json").output
    assert shown(output) == [[2]]
    assert not half_written.exists()


@pytest.mark.nightly
def test_derby_database_of_an_earlier_version_is_imported_once(dbt_project: MakeProject) -> None:
    project = dbt_project(FILES)
    state_dir = project.folder / ".upsert_kafka"
    # What version 0.1.0 set.
    derby = {
        "spark.sql.warehouse.dir": str(state_dir / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={state_dir / 'metastore'};create=true",
    }
    today = dict(project.profile["spark"])
    project.profile["spark"] = {**today, **derby}
    project.save_profile()
    state_dir.mkdir()
    project.succeed("build", new_process=True)
    project.profile["spark"] = today
    project.save_profile()
    first = project.succeed("run", "--select", "history", new_process=True)
    assert "Importing the tables and views of" in first.output
    second = project.succeed("show", "--inline", SHOWN, "--output", "json", "--limit", "9", new_process=True)
    assert "Importing" not in second.output
    assert shown(second.output) == ROWS
