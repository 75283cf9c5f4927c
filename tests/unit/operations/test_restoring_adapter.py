"""A cluster that can't be listed while dbt fills its cache."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.errors import WarningError
from dbt.adapters.upsert_kafka.operations.restoring_adapter import RestoringAdapter


def test_cluster_that_can_not_be_listed_is_one_warning(warnings: list[str]) -> None:
    adapter: Any = SimpleNamespace(_listing_errors={})
    for _schema in ("shop", "sales"):
        RestoringAdapter._warn_about_listing(adapter, {"a:1": "no broker answered"})
    assert warnings == ["The relations of models with topics at 'a:1' are not known: no broker answered"]
    assert adapter._listing_errors == {"a:1": "no broker answered"}, "models with topics are refused"


def test_cluster_that_can_not_be_listed_is_an_error_with_warn_error(warn_error: list[str]) -> None:
    adapter: Any = SimpleNamespace(_listing_errors={})
    with pytest.raises(WarningError, match="are not known: no broker answered"):
        RestoringAdapter._warn_about_listing(adapter, {"a:1": "no broker answered"})
