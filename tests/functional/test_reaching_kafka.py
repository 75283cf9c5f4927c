"""An address at which no usable Kafka broker answers: each reason has a line of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dbt.adapters.upsert_kafka.errors import KafkaUnreachableError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from tests.secured import PLAIN, SecuredCluster
from tests.services import Cluster

PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = {
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_LOGIN} user_ann="secret";',
}


@contextmanager
def server(answer: bytes | None) -> Iterator[str]:
    """A server that is not Kafka: it answers every connection with these bytes, or not at all."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connections = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:  # the test has ended
                    return
                connections.append(connection)
                if answer is not None:
                    connection.recv(1000)
                    connection.sendall(answer)
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        for connection in connections:
            connection.close()


def failure(servers: str, **properties: str) -> str:
    """The error of a client, one line."""
    with pytest.raises(KafkaUnreachableError) as refusal, KafkaSettings(servers, properties).admin():
        pass
    message = str(refusal.value.msg)
    assert "\n" not in message
    return message


def test_host_that_does_not_exist() -> None:
    assert "'no-such-host.invalid:9092': host not found. Check the host name" in failure("no-such-host.invalid:9092")


def test_address_without_a_port() -> None:
    assert failure("localhost") == "No Kafka broker answered at 'localhost': not an address. Write it as host:port"


def test_refused_connection_and_every_address_is_named() -> None:
    message = failure("127.0.0.1:9,127.0.0.1:8")
    assert "'127.0.0.1:9': connection refused. Check the port" in message and "'127.0.0.1:8': connection refused" in message


def test_server_that_is_not_kafka() -> None:
    with server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        assert "not a Kafka broker: another server answers there" in failure(address)
    with server(None) as address:
        assert "no answer within 5 s: not a Kafka broker" in failure(address)


def test_second_failure_is_reported_without_another_try() -> None:
    with server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        first = failure(address)
    # Another try would find that nothing listens there any more.
    assert failure(address) == first


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredCluster]:
    with SecuredCluster() as cluster:
        yield cluster


def test_listener_that_expects_tls(secured: SecuredCluster) -> None:
    assert "the listener expects TLS. Set security.protocol to SSL or SASL_SSL" in failure(secured.mutual_servers)
    assert "the listener expects TLS" in failure(secured.sasl_servers)


def test_listener_that_expects_a_login() -> None:
    with Cluster(properties=SASL, secured=("SASL_PLAINTEXT",)) as cluster:
        address = f"127.0.0.1:{cluster.ports['SASL_PLAINTEXT']}"
        assert "the listener expects a login (SASL). Set security.protocol" in failure(address)
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        user = {"sasl.jaas.config": f'{PLAIN_LOGIN} username="ann" password="secret";'}
        with KafkaSettings(address, {**login, **user}).admin() as admin:
            assert admin.describe_cluster()["brokers"]
        assert "the listener expects no login. Set security.protocol" in failure(cluster.bootstrap_servers, **login, **user)


def test_client_with_tls_at_another_listener(secured: SecuredCluster) -> None:
    login, certificate = secured.sasl(*PLAIN, "PLAIN"), secured.mutual()
    tls = {name: value for name, value in login.items() if not name.startswith("sasl.")} | {"security.protocol": "SSL"}
    message = failure(secured.sasl_servers, **tls)
    assert "the listener expects a login (SASL). Set security.protocol, which is SSL, to SASL_SSL" in message
    message = failure(secured.mutual_servers, **{**certificate, **login})
    assert "the listener expects no login. Set security.protocol, which is SASL_SSL, to SSL" in message
    for properties, without in ((certificate, "SSL, to PLAINTEXT"), (login, "SASL_SSL, to SASL_PLAINTEXT")):
        message = failure(secured.admin_servers, **properties)
        assert f"the listener expects no TLS. Set security.protocol, which is {without}" in message
    with KafkaSettings(secured.mutual_servers, certificate).admin() as admin:
        assert admin.describe_cluster()["brokers"]


def test_wrong_plain_password(secured: SecuredCluster) -> None:
    message = failure(secured.sasl_servers, **secured.sasl(PLAIN[0], "wrong", "PLAIN"))
    assert "wrong name or password" in message and "user 'plainly'" in message and "(PLAIN)" in message


def test_one_address_that_answers_is_enough(broker: str) -> None:
    with KafkaSettings(f"127.0.0.1:9,{broker}").admin() as admin:
        assert admin.describe_cluster()["brokers"]
