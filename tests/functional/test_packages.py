"""docs/packages.md: packages of dbt's hub on a model with a topic. Skipped where the hub can't be reached.

UPSERT_KAFKA_TEST_PACKAGES names a folder with the unpacked packages instead, one folder for each.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import pytest

from tests.dbt_project import Project

PACKAGES = """packages:
  - {package: dbt-labs/dbt_utils, version: [">=1.3.0", "<2.0.0"]}
  - {package: dbt-labs/spark_utils, version: [">=0.3.0", "<1.0.0"]}
  - {package: dbt-labs/codegen, version: [">=0.12.0", "<1.0.0"]}
  - {package: dbt-labs/audit_helper, version: [">=0.12.0", "<1.0.0"]}
  - {package: metaplane/dbt_expectations, version: [">=0.10.0", "<1.0.0"]}
  - {package: dbt-labs/dbt_project_evaluator, version: [">=1.0.0", "<2.0.0"]}
"""
SETTINGS = """
dispatch:
  - macro_namespace: dbt_utils
    search_order: [spark_utils, dbt_utils]
vars:
  "dbt_date:time_zone": UTC
  dbt_project_evaluator:
    max_depth_dag: 9
"""
USERS = """{{ config(materialized='upsert_kafka', unique_key='user_id') }}
select user_id, name, {{ dbt_utils.generate_surrogate_key(['user_id', 'name']) }} as id, {{ dbt_date.today() }} as today
from values (1, 'ann'), (2, 'bob') as users(user_id, name)"""
SCHEMA = """
models:
  - name: users
    data_tests:
      - dbt_utils.expression_is_true: {arguments: {expression: "user_id > 0"}}
      - dbt_expectations.expect_table_row_count_to_equal: {arguments: {value: 2}}
    columns:
      - name: user_id
        data_tests:
          - dbt_utils.accepted_range: {arguments: {min_value: 1}}
          - dbt_expectations.expect_column_values_to_be_unique
"""
COMPARE = """{{ audit_helper.compare_relations(a_relation=ref('users'), b_relation=ref('users'), primary_key='user_id') }}"""


@pytest.mark.nightly
def test_packages_work_on_topics(dbt_project: Callable[..., Project]) -> None:
    files = {"packages.yml": PACKAGES, "models/users.sql": USERS, "models/schema.yml": SCHEMA, "analyses/compare.sql": COMPARE}
    project = dbt_project(files)
    path = project.folder / "dbt_project.yml"
    path.write_text(path.read_text() + SETTINGS)
    if folder := os.environ.get("UPSERT_KAFKA_TEST_PACKAGES"):
        (project.folder / "packages.yml").unlink()
        shutil.copytree(folder, project.folder / "dbt_packages")
    elif (installed := project.run("deps", timeout=120)).exit_code != 0:
        pytest.skip(f"dbt's hub can't be reached, so docs/packages.md is not confirmed: {installed.output[-300:]}")
    with project.one_process():
        project.succeed("build", "--select", "users")
        project.succeed("show", "--select", "compare")
        generated = project.succeed("run-operation", "generate_model_yaml", "--args", "{model_names: [users]}")
        assert "user_id" in generated.output
        project.succeed("build", "--select", "package:dbt_project_evaluator", "--warn-error-options", "{}")
