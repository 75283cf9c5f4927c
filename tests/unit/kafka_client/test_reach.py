"""What is remembered about a cluster that can't be used, so that the models of a run don't try again and again."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kafka
import pytest
from kafka.errors import KafkaTimeoutError

from dbt.adapters.upsert_kafka import dbt_internals
from dbt.adapters.upsert_kafka.errors import KafkaUnreachableError
from dbt.adapters.upsert_kafka.kafka_client import reach
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from tests.login_server import LoginServer

WRONG_PASSWORD = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="wrong";',
}


def failure(servers: str, **properties: str) -> str:
    with pytest.raises(KafkaUnreachableError) as refusal, KafkaSettings(servers, properties).admin():
        pass
    return str(refusal.value.msg)


@pytest.fixture
def silent() -> Iterator[tuple[str, list[socket.socket]]]:
    """A server that accepts connections and never answers, and its connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connections: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connections.append(listening.accept()[0])
                except OSError:  # the test has ended
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", connections
        for connection in connections:
            connection.close()


def test_models_of_a_command_make_at_most_two_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    # However long the other models take.
    monkeypatch.setattr(reach, "FAILURE_IS_KNOWN_SECONDS", 0)
    with LoginServer() as server:
        with ThreadPoolExecutor(4) as threads:
            messages = list(threads.map(lambda _: failure(server.address, **WRONG_PASSWORD), range(8)))
        [message] = set(messages)
        assert "the broker refused the login of user 'ann' (PLAIN), wrong name or password: check sasl.*" in message
        attempts = len(server.logins)
        assert 1 <= attempts <= 2
        # The password may be right in the next command of the same process.
        monkeypatch.setattr(dbt_internals, "invocation_id", lambda: "next")
        assert failure(server.address, **WRONG_PASSWORD) == message
        assert len(server.logins) > attempts


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_listener_that_never_answers_costs_one_wait(
    silent: tuple[str, list[socket.socket]], protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, connections = silent
    monkeypatch.setattr(reach, "TIMEOUT_SECONDS", 0.2)
    properties = {**WRONG_PASSWORD, "security.protocol": protocol}
    with ThreadPoolExecutor(4) as threads:
        [message] = set(threads.map(lambda _: failure(address, **properties), range(4)))
    assert "no answer to the TLS handshake within" in message and "the listener expects no TLS" in message
    assert len(connections) == 1


def test_client_that_can_not_connect_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def never(**arguments: Any) -> None:
        tries.append(arguments)
        raise KafkaTimeoutError

    monkeypatch.setattr(kafka, "KafkaAdminClient", never)
    monkeypatch.setattr(reach, "_check", lambda *_: None)
    first = failure("127.0.0.1:1")
    assert first.startswith("No Kafka broker answered at '127.0.0.1:1' (KafkaTimeoutError)")
    assert (failure("127.0.0.1:1"), len(tries)) == (first, 1)
