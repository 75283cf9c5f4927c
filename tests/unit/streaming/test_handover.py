"""The start of a continuous stream while another process may still run it. Kafka is simulated."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.errors import WarningError
from dbt.adapters.upsert_kafka.streaming import handover


def test_wait_for_a_lease_is_a_warning_before_anything_is_written(monkeypatch: pytest.MonkeyPatch, warn_error: list[str]) -> None:
    monkeypatch.setattr(handover.topics, "describe", lambda *_: "a topic")
    monkeypatch.setattr(handover.memory, "look", lambda *_: SimpleNamespace(stream=None))
    monkeypatch.setattr(handover.lease, "holder", lambda _: SimpleNamespace(until=0.0))
    request: Any = SimpleNamespace(model="users", topic="t", kafka=SimpleNamespace(admin=nullcontext))
    with pytest.raises(WarningError, match="model users: waits for the lease of "):
        handover.wait_for_lease(request, lambda: False)
