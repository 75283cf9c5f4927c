"""When the tests of a command share one read of a topic."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.operations.sharing_adapter import SharingAdapter
from dbt.adapters.upsert_kafka.spark import shared_jvm

MODEL, TEST = "model.shop.orders", "test.shop.unique_orders_id"
GRAPH = {
    "nodes": {
        MODEL: {"schema": "dev", "alias": "orders", "config": {"materialized": "upsert_kafka", "unique_key": "id"}},
        TEST: {"unique_id": TEST, "depends_on": {"nodes": [MODEL]}, "config": {}},
    }
}


class Adapter:
    """The parts of the adapter that `share_reads` uses."""

    config = SimpleNamespace(credentials=SimpleNamespace(remote=None))
    _thread = SimpleNamespace()
    _sharing = nullcontext()
    _shared_reads = SimpleNamespace(sql_of=lambda spark, sql, tested: f"stored rows of {tested[0].relation}")

    def _topics_of_models(self, *_: Any) -> Any:
        return SimpleNamespace(by_model={MODEL: ("orders", "dev.orders")})

    def _position_of(self, *_: Any) -> None:
        return None

    def _handle(self) -> Any:
        return SimpleNamespace(spark=None)


@pytest.mark.parametrize("is_shared", [False, True])
def test_rows_are_not_stored_where_another_command_would_read_them(monkeypatch: pytest.MonkeyPatch, is_shared: bool) -> None:
    """Two commands of a resident dbt with one metastore have one set of cached tables and global temporary views."""
    monkeypatch.setattr(shared_jvm, "shares_state", lambda: is_shared)
    adapter: Any = Adapter()
    sql = SharingAdapter.share_reads(adapter, GRAPH["nodes"][TEST], "SELECT 1", GRAPH, [TEST], None)
    assert sql == ("SELECT 1" if is_shared else "stored rows of dev.orders")
