"""Models that can't be streams whatever their SELECT is, refused in one line before Spark or Kafka is used."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dbt.adapters.upsert_kafka import options
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.streaming.streams_of import StreamsOfModels

MODEL: dict[str, Any] = {"name": "m", "unique_id": "model.shop.m", "language": "sql"}


@pytest.mark.parametrize(
    ("model", "remote", "message"),
    [
        (MODEL, "sc://spark:15002", "Set `master` instead of `remote` in the profile, or trigger='batch'"),
        ({**MODEL, "language": "python"}, None, "a Python model can't be a stream. Remove the trigger"),
    ],
    ids=["remote", "Python model"],
)
def test_remote_sparks_and_python_models_are_refused(model: dict[str, Any], remote: str | None, message: str) -> None:
    # Without Spark and Kafka: the use of one of them would fail.
    handle: Any = SimpleNamespace(credentials=SimpleNamespace(remote=remote))
    parsed = options.parse("upsert_kafka", "m", {"unique_key": "id", "trigger": "available-now"})
    request: Any = SimpleNamespace(model="m", options=parsed)
    with pytest.raises(OptionsError) as refused:
        StreamsOfModels().publish(model, "SELECT 1 AS id", handle, request, None)
    text = str(refused.value.msg)
    assert message in text and text.endswith("Nothing was started.") and len(text.splitlines()) == 1
