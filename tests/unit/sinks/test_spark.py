"""The sink for `none` and `at-least-once`: what it refuses before the write, and which cause it reports after it."""

from __future__ import annotations

from typing import Any, cast

import pytest
from kafka.errors import KafkaTimeoutError

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.sinks import Target, spark
from dbt.adapters.upsert_kafka.spark.failures import Cause

NO_ADMIN = cast(Any, None)


def fail(*_: object) -> None:
    raise KafkaTimeoutError


@pytest.mark.parametrize(
    ("description", "lacks_replicas", "cause"),
    [
        (None, False, Cause.TOPIC_UNKNOWN),
        ("a topic", True, Cause.TOO_FEW_REPLICAS),
        ("a topic", False, None),
    ],
)
def test_cause_of_a_failed_write_is_found_in_the_topic(
    monkeypatch: pytest.MonkeyPatch, description: str | None, lacks_replicas: bool, cause: Cause | None
) -> None:
    monkeypatch.setattr(spark.topics, "describe", lambda *_: description)
    monkeypatch.setattr(spark.topics, "lacks_replicas", lambda *_: lacks_replicas)
    assert spark._cause_in_topic(NO_ADMIN, "orders") is cause


def test_brokers_that_do_not_answer_hide_the_cause_and_the_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark.topics, "describe", fail)
    monkeypatch.setattr(spark.topics, "ends", fail)
    assert spark._cause_in_topic(NO_ADMIN, "orders") is None
    assert spark._ends(NO_ADMIN, Target("orders", 4, KafkaSettings("b:9092", {}), NO_ADMIN)) == {}


def test_message_above_the_limit_is_refused() -> None:
    spark.check_size("orders", 900, 1000, {"max.request.size": "1000"})
    with pytest.raises(GuardError, match="orders: the largest message has 901 bytes and at most 1000 are allowed; raise"):
        spark.check_size("orders", 901, 1000, {"max.request.size": "1000"})
    spark.check_size("orders", 2_000_000, 3_000_000, {})
