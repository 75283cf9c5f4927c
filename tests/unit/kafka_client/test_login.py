"""A login that a broker accepted is not tried again in the same process."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.errors import KafkaError

from dbt.adapters.upsert_kafka.kafka_client import login

ARGUMENTS = {"bootstrap_servers": ["broker-1:9092"], "security_protocol": "SASL_SSL", "sasl_plain_password": "secret"}


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of each connection. All are accepted."""
    made: list[Any] = []

    def connect(arguments: Any, server: str) -> KafkaError | None:
        made.append(arguments)
        return None

    monkeypatch.setattr(login, "_connect", connect)
    monkeypatch.setattr(login, "_accepted", set())
    return made


def test_accepted_login_is_remembered_until_it_changes(connections: list[Any]) -> None:
    login.check(ARGUMENTS, "dbt")
    login.check(ARGUMENTS, "dbt")
    assert len(connections) == 1
    login.check({**ARGUMENTS, "sasl_plain_password": "another"}, "dbt")
    assert len(connections) == 2


def test_password_is_not_kept(connections: list[Any]) -> None:
    login.check(ARGUMENTS, "dbt")
    [digest] = login._accepted
    assert b"secret" not in digest
