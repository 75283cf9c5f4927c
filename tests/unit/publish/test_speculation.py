"""spark.speculation is refused before anything is computed, however it is written, by every pipeline that writes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.publish import append, deliver, pipeline
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.streaming import pipeline as streaming
from dbt.adapters.upsert_kafka.streaming.pipeline import StreamModel


def spark(value: str | None) -> Any:
    """A Spark that has this setting and can't compute anything."""
    return SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: value if name == "spark.speculation" else default))


def request(mode: str = "publish") -> Any:
    return SimpleNamespace(model="orders", topic="orders", mode=mode)


def stream(spark: Any, rows: Any, request: Any) -> None:
    streaming.publish(cast(StreamModel, SimpleNamespace(spark=spark, request=request)))


def restarted_stream(spark: Any, rows: Any, request: Any) -> None:
    streaming.analyse(cast(StreamModel, SimpleNamespace(spark=spark, request=request)))


@pytest.mark.parametrize("write", [pipeline.publish, append.append, stream, restarted_stream])
@pytest.mark.parametrize("value", ["true", "True", "TRUE", " true "])
def test_speculation_is_refused(write: Callable[..., object], value: str) -> None:
    with pytest.raises(GuardError, match=r"model orders: spark.speculation is true.* Nothing was written. Set spark.speculation"):
        write(spark(value), None, request())


@pytest.mark.parametrize(("value", "mode"), [("false", "publish"), (None, "publish"), ("true", "preview")])
def test_other_values_and_runs_that_write_nothing_are_accepted(value: str | None, mode: str) -> None:
    deliver.check_spark(spark(value), cast(Request, request(mode)))
