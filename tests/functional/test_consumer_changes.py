"""What changes for the consumers of a topic is announced before it is published, or refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError
from dbt.adapters.upsert_kafka.publish.contracts import Check
from dbt.adapters.upsert_kafka.state.store import StateSettings
from tests.dbt_project import Project
from tests.services import end_offsets
from tests.tables import Table

MODEL = "{{{{ config(materialized='upsert_kafka', unique_key='id'{more}) }}}} select 1 as id, {columns}"
PROPERTIES = """
models:
  - name: users
    config: {contract: {enforced: true}}
    columns:
      - {name: id, data_type: int, constraints: [{type: check, expression: id < 10}]}
      - {name: name, data_type: string}
    constraints: [{type: check, name: short_name, expression: length(name) < 5}]
"""


def test_changed_columns_and_format_are_announced(table: Table, warnings: list[str]) -> None:
    table.publish([(1, "ann")])
    table.publish([(1, "ann", 3)], "id int, name string, age int")
    assert warnings == [], "an added column is no surprise"
    table.publish([(1, "ann", 3)], "id int, full_name string, age bigint")
    table.publish([(1, "ann", 3)], "id int, full_name string, AGE bigint", value_fields_include="EXCEPT_KEY")
    table.publish([(1, "ann", 3)], "id int, full_name string, age bigint", value_format="csv")
    table.publish([(1, 3, "ann")], "id int, age bigint, full_name string", value_format="csv")
    assert [warning.partition("(")[2].partition("):")[0] for warning in warnings] == [
        "renamed: name (now full_name); of another type: age (int to bigint)",
        "renamed: age (now AGE); removed: id",
        "value format: json to csv; renamed: AGE (now age); added: id",
        "in another order: id, age, full_name",
    ]


@pytest.mark.parametrize("materialization", ["upsert_kafka", "kafka"])
def test_layout_of_the_view_is_announced_without_a_state_topic(table: Table, materialization: str, warnings: list[str]) -> None:
    table.materialization = materialization
    without: dict[str, Any] = {"state": StateSettings("none"), "owner": None}
    table.publish([(1, "ann")], **without)
    table.publish([(1, "ann")], **without)
    assert warnings == []
    table.publish([(1, "ann")], "id int, label string", **without)
    assert [warning.partition("(")[2].partition("):")[0] for warning in warnings] == ["renamed: name (now label)"]


@pytest.mark.parametrize("materialization", ["upsert_kafka", "kafka"])
def test_fail_refuses_another_format_after_the_catalog_was_lost(table: Table, materialization: str) -> None:
    table.materialization = materialization
    table.publish([(1, "ann")])
    table.published, before = False, table.end()
    with pytest.raises(GuardError, match=r"differ from those published .value format: json to csv. and on_schema_change='fail'"):
        table.publish([(1, "ann")], value_format="csv", on_schema_change="fail")
    with pytest.raises(GuardError, match=r"renamed: name .now label."):
        table.publish([(1, "ann")], "id int, label string", on_schema_change="fail")
    assert table.end() == before


def test_excluded_column_is_no_difference(table: Table) -> None:
    columns = "id int, name string, secret string"
    table.publish([(1, "ann", "x")], columns, exclude_columns=["secret"])
    assert table.publish([(1, "ann", "y")], columns, exclude_columns=["secret"], on_schema_change="fail").unchanged == 1


def test_rows_that_violate_a_check_constraint_are_refused(table: Table) -> None:
    checks = (Check("id < 10"), Check("length(name) < 5", "short_name"))
    table.publish([(1, "ann"), (2, None)], checks=checks)
    before = table.end()
    with pytest.raises(GuardError, match=r"(?s)1 row violates the check constraint \(id < 10\).*2 rows violate .*short_name"):
        table.publish([(1, "annabel"), (12, "isabella")], checks=checks)
    with pytest.raises(OptionsError, match=r"check constraint \(nam > 1\) can't be evaluated: .*UNRESOLVED_COLUMN"):
        table.publish([(1, "ann")], checks=(Check("nam > 1"),))
    assert table.end() == before


@pytest.mark.nightly
def test_a_new_process_without_the_local_folder_refuses_and_announces(
    dbt_project: Callable[..., Project], broker: str, schema_name: str
) -> None:
    project = dbt_project({"models/users.sql": MODEL.format(more="", columns="'ann' as name"), "models/users.yml": PROPERTIES})
    first = project.succeed("--warn-error", "run", new_process=True)
    assert "will be ignored" not in first.output, "dbt's parser must not warn about constraints that are enforced"
    shutil.rmtree(project.folder / ".upsert_kafka")
    before = end_offsets(broker, f"{schema_name}.users")
    with project.one_process():
        project.write({"models/users.sql": MODEL.format(more="", columns="'annabel' as name")})
        violated = project.run("run")
        assert "1 row violates the check constraint short_name (length(name) < 5)" in violated.message("users")
        (project.folder / "models/users.yml").unlink()
        project.write({"models/users.sql": MODEL.format(more=", on_schema_change='fail'", columns="'ann' as label")})
        assert "renamed: name (now label)" in project.run("run").message("users")
        assert end_offsets(broker, f"{schema_name}.users") == before
        project.write({"models/users.sql": MODEL.format(more="", columns="'ann' as label")})
        announced = project.succeed("run").output
        assert "change for consumers (renamed: name (now label)): consumers find no value under the old names." in announced
