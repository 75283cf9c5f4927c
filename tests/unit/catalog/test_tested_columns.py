"""The columns that dbt's own tests read, from the graph and from the SQL of dbt's macros."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
from jinja2 import Environment

from dbt.adapters.upsert_kafka.catalog.tested_columns import expected, read_by

ORDERS, USERS = "model.shop.orders", "model.shop.users"
SQL = files("dbt.include.global_project") / "macros" / "generic_test_sql"


def of_dbt(test: str, **arguments: Any) -> str:
    """The SQL of the macro that dbt has for a test."""
    source = (SQL / f"{test}.sql").read_text()
    macros: Any = Environment().from_string(source, globals={"should_store_failures": lambda: False}).module
    return str(getattr(macros, f"default__test_{test}")(**arguments))


@pytest.mark.parametrize(
    ("test", "arguments"),
    [
        ("unique", {}),
        ("not_null", {}),
        ("accepted_values", {"values": ["a, ) b", "c\\'d"]}),
        ("accepted_values", {"values": [1, -2.5], "quote": False}),
        ("relationships", {"to": "dev.users", "field": "name"}),
    ],
)
def test_tests_of_dbt_are_recognized(test: str, arguments: dict[str, Any]) -> None:
    for column in ("Id", "`Id`"):
        assert read_by(of_dbt(test, model="dev.orders", column_name=column, **arguments), "dev.orders") == {"id"}


def test_relationship_reads_a_column_of_both_relations() -> None:
    sql = of_dbt("relationships", model="dev.orders", column_name="user", to="dev.users", field="id")
    assert (read_by(sql, "dev.orders"), read_by(sql, "dev.users")) == ({"user"}, {"id"})
    to_itself = of_dbt("relationships", model="dev.orders", column_name="parent", to="dev.orders", field="id")
    assert read_by(to_itself, "dev.orders") == {"parent", "id"}


@pytest.mark.parametrize(
    "sql",
    [
        of_dbt("unique", model="(select * from dev.orders where total > 1) dbt_subquery", column_name="id"),
        of_dbt("not_null", model="dev.orders", column_name="id") + " or total is null",
        of_dbt("not_null", model="dev.orders", column_name="id").replace("select id", "select *"),
        of_dbt("not_null", model="dev.orders", column_name="id").replace("where id", "where total"),
        of_dbt("unique", model="dev.orders", column_name="lower(id)"),
        of_dbt("accepted_values", model="dev.orders", column_name="id", values=["(select 1 from b)"], quote=False),
        of_dbt("accepted_values", model="dev.orders", column_name="id", values=["total"], quote=False),
        of_dbt("not_null", model="dev.orders_2", column_name="id"),
    ],
)
def test_other_sql_may_read_any_column(sql: str) -> None:
    assert read_by(sql, "dev.orders") is None


def node(name: str, column: str | None, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": more.pop("namespace", None), "kwargs": more.pop("arguments", {})}
    of_test = {"column_name": column, "attached_node": ORDERS, "config": {}, "depends_on": {"nodes": [ORDERS]}}
    return {**of_test, "test_metadata": metadata, **more}


def test_columns_of_all_tests_are_expected() -> None:
    assert expected([node("unique", "id"), node("not_null", "`Total`")], ORDERS) == {"id", "total"}
    related = node("relationships", "user", arguments={"field": "id"}, depends_on={"nodes": [USERS, ORDERS]})
    assert (expected([related], ORDERS), expected([related], USERS)) == ({"user"}, {"id"})
    to_itself = node("relationships", "parent", arguments={"field": "id"})
    assert expected([to_itself], ORDERS) == {"parent", "id"}


@pytest.mark.parametrize(
    "other",
    [
        node("unique", "lower(id)"),
        node("unique", None),
        node("unique", "id", config={"where": "total > 1"}),
        node("unique", "id", namespace="dbt_utils"),
        node("is_even", "id"),
        node("unique", "id", attached_node=USERS),
        {"config": {}, "depends_on": {"nodes": [ORDERS]}},
    ],
)
def test_any_column_is_expected_of_other_tests(other: dict[str, Any]) -> None:
    assert expected([node("not_null", "id"), other], ORDERS) is None
