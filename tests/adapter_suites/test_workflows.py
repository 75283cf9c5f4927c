"""Workflows of a project with topics: list, compile, unit tests, clone, defer, state, retry, operations. Not suites of dbt."""

from __future__ import annotations

import re
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from dbt.tests.fixtures.project import TestProjInfo
from dbt.tests.util import run_dbt, run_dbt_and_capture, write_file

ORDERS = "select 1 as id, 'ann' as buyer, 10 as amount union all select 2, 'bob', 20"
BUYERS = """
{{ config(materialized='upsert_kafka', unique_key='buyer') }}
select buyer, sum(amount) as total from {{ ref('orders') }} group by buyer
"""
REPORT = "select count(*) as buyers from {{ ref('buyers') }}"
SCHEMA = """
models:
  - name: buyers
    columns:
      - name: buyer
        data_tests: [unique, not_null]
unit_tests:
  - name: amounts_are_added
    model: buyers
    given:
      - input: ref('orders')
        rows: [{id: 1, buyer: ann, amount: 10}, {id: 2, buyer: ann, amount: 5}]
    expect:
      rows: [{buyer: ann, total: 15}]
"""


class TestTopicsInWorkflows:
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {"orders.sql": ORDERS, "buyers.sql": BUYERS, "report.sql": REPORT, "schema.yml": SCHEMA}

    @pytest.fixture(scope="class")
    def profiles_config_update(self, dbt_profile_target: dict[str, Any], unique_schema: str) -> dict[str, Any]:
        production, development = deepcopy(dbt_profile_target), deepcopy(dbt_profile_target)
        production["schema"], development["schema"] = unique_schema, f"{unique_schema}_dev"
        return {"test": {"outputs": {"default": production, "dev": development}, "target": "default"}}

    def test_from_build_to_orphans(self, project: TestProjInfo) -> None:
        assert run_dbt(["list", "--resource-type", "model"]) == ["test.buyers", "test.orders", "test.report"]
        run_dbt(["compile", "--select", "buyers"])
        compiled = Path(project.project_root) / "target" / "compiled" / "test" / "models" / "buyers.sql"
        assert f"from {project.test_schema}.orders group by buyer" in compiled.read_text()
        results = run_dbt(["build"])
        assert {str(result.status) for result in results} == {"success", "pass"}
        assert len(run_dbt(["test", "--select", "test_type:unit"])) == 1

        state = Path(project.project_root) / "state"
        state.mkdir()
        shutil.copy(Path(project.project_root) / "target" / "manifest.json", state)

        # A clone is a view of the same topic. Nothing is published.
        run_dbt(["clone", "--state", "state", "--target", "dev", "--select", "buyers"])
        assert self.rows(project, f"{project.test_schema}_dev.buyers") == [("ann", 10), ("bob", 20)]
        lines = run_dbt_and_capture(["run-operation", "list_topics"])[1]
        [line] = re.findall(rf"buyers: topic '{project.test_schema}.buyers', partitions 1, records 2.*", lines)
        assert ", lag 0, owner model buyers of project test, environment default, schema " in line

        # Modified models run in development and read all others, also the topic, from production.
        write_file("select count(*) + 0 as buyers from {{ ref('buyers') }}", project.project_root, "models", "report.sql")
        deferred = ["run", "--target", "dev", "--state", "state", "--defer", "--favor-state", "--select", "state:modified"]
        assert [result.node.name for result in run_dbt(deferred)] == ["report"]
        assert self.rows(project, f"{project.test_schema}_dev.report") == [(2,)]

        # dbt retry runs what failed.
        write_file(REPORT.replace("count(*)", "count(no_such)"), project.project_root, "models", "report.sql")
        run_dbt(["run"], expect_pass=False)
        write_file(REPORT, project.project_root, "models", "report.sql")
        assert [result.node.name for result in run_dbt(["retry"])] == ["report"]

        # A model that becomes a view leaves its topic and logs this.
        write_file(BUYERS.replace("upsert_kafka", "view"), project.project_root, "models", "buyers.sql")
        told = run_dbt_and_capture(["run", "--select", "buyers"])[1]
        assert f"buyers: is a view now; its topic '{project.test_schema}.buyers' is not deleted" in told

        # The topic of a removed model is listed, and deleted on request.
        for name in ("buyers.sql", "report.sql", "schema.yml"):
            (Path(project.project_root) / "models" / name).unlink()
        dry = run_dbt_and_capture(["run-operation", "drop_orphan_topics"])[1]
        assert f"topic '{project.test_schema}.buyers': created for {project.test_schema}.buyers" in dry
        assert "dry run: nothing is deleted" in dry
        dropped = run_dbt_and_capture(["run-operation", "drop_orphan_topics", "--args", "{dry_run: false}"])[1]
        assert f"dropped: topic '{project.test_schema}.buyers'" in dropped
        assert "no orphans" in run_dbt_and_capture(["run-operation", "orphan_topics"])[1]

    def rows(self, project: TestProjInfo, relation: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in project.run_sql(f"select * from {relation}", fetch="all"))
