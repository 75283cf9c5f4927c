"""The limit of a Derby metastore that a profile may name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dbt.adapters.upsert_kafka.catalog.views import DERBY_TEXT_LIMIT, length_problem


def session(metastore: str) -> Any:
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: metastore))


def test_view_that_is_too_long_for_derby_is_refused() -> None:
    query = "x" * (DERBY_TEXT_LIMIT + 1)
    assert "has 32701 characters" in (length_problem(session("jdbc:derby:;databaseName=x"), query) or "")
    assert length_problem(session("jdbc:derby:;databaseName=x"), query[1:]) is None
    assert length_problem(session(""), query) is None
