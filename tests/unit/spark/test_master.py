"""A Spark master that can't be reached is named, with what was tried."""

from __future__ import annotations

import socket

import pytest

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.spark import master


def test_unreachable_masters_are_listed_with_their_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(address: tuple[str, int], timeout: float) -> None:
        raise socket.gaierror if address[0] == "nowhere" else ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(UpsertKafkaError) as error:
        master.check("spark://nowhere:7077,here:7078")
    assert (
        "master 'spark://nowhere:7077,here:7078': nowhere:7077: host not found; here:7078: connection refused." in error.value.msg
    )


@pytest.mark.parametrize("other", [None, "local[*]", "yarn", "k8s://https://a:443"])
def test_other_masters_are_left_to_spark(other: str | None) -> None:
    master.check(other)
