"""The private parts of kafka-python: a failure here names what a release changed. `internals` itself names a moved module."""

from __future__ import annotations

import inspect
import os
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import crc32c
import kafka
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.cluster import ClusterMetadata
from kafka.errors import KafkaConnectionError, KafkaError
from kafka.record.util import calc_crc32c

from dbt.adapters.upsert_kafka.kafka_client import internals, login
from dbt.adapters.upsert_kafka.kafka_client.internals import (
    ADMIN_DEFAULTS,
    SASL_MECHANISMS,
    Future,
    NetworkSelector,
    OffsetFetchRequest,
    close_connections,
    handshake_error,
    is_disconnect,
    open_connections,
    tls_alert,
)
from dbt.adapters.upsert_kafka.kafka_client.tls import Tls
from tests.certificates import Certificates

ADAPT = f"in kafka-python {kafka.__version__}: adapt kafka_client/internals.py and its users"

METHODS = {
    "AbstractTokenProvider": ["token", "extensions"],
    "AddPartitionsToTxnRequest": ["AddPartitionsToTxnTopic"],
    "Future": ["failed", "failure", "success"],
    "KafkaConnectionManager": ["bootstrap", "close", "get_connection", "least_loaded_node", "send"],
    "NetworkSelector": ["close", "poll", "run"],
    "ProduceRequest": ["TopicProduceData"],
    "TxnOffsetCommitRequest": ["TxnOffsetCommitRequestTopic"],
}
CLUSTER_METHODS = ["add_coordinator", "add_topic", "bootstrap_brokers", "leader_for_partition", "request_update"]

Server = Callable[[Callable[[socket.socket], object]], int]


@pytest.fixture
def server() -> Iterator[Server]:
    """Starts servers on loopback; each passes every connection to the given function and closes it afterwards."""
    listeners: list[socket.socket] = []

    def start(handle: Callable[[socket.socket], object]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    handle(connection)

        threading.Thread(target=serve, daemon=True).start()
        return int(listener.getsockname()[1])

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def connect(port: int, **arguments: Any) -> KafkaError:
    """The error that kafka-python reports for a connection to the port."""
    error = login._connect(arguments, f"127.0.0.1:{port}")
    assert error is not None, "the connection was expected to fail"
    return error


@pytest.mark.parametrize("name", METHODS)
def test_classes_have_the_methods_that_are_used(name: str) -> None:
    missing = [method for method in METHODS[name] if not hasattr(getattr(internals, name), method)]
    assert not missing, f"{name} has no {', '.join(missing)} {ADAPT}"


def test_connections_have_the_attributes_that_are_used() -> None:
    net, manager = open_connections({"bootstrap_servers": ["127.0.0.1:1"], "request_timeout_ms": 1234})
    try:
        assert manager.config["request_timeout_ms"] == 1234, f"a manager's config has no request_timeout_ms {ADAPT}"
        assert manager.cluster.config["allow_auto_create_topics"] is True, (
            f"a client's metadata no longer has allow_auto_create_topics, so it may create topics {ADAPT}"
        )
        missing = [method for method in CLUSTER_METHODS if not hasattr(manager.cluster, method)]
        assert not missing, f"a manager's cluster has no {', '.join(missing)} {ADAPT}"
        assert {"timeout_ms", "future"} <= inspect.signature(net.poll).parameters.keys(), f"poll() takes other arguments {ADAPT}"
    finally:
        close_connections(manager, net)


def test_future_keeps_a_failure() -> None:
    error = KafkaConnectionError()
    failed = Future().failure(error)
    assert failed is not None and failed.failed() and failed.exception is error, f"Future.failure() changed {ADAPT}"
    assert Future().success(1).value == 1, f"Future.success() changed {ADAPT}"


def test_requests_take_the_fields_that_are_sent() -> None:
    producer = {"producer_id": 1, "producer_epoch": 0}
    topic_data = internals.ProduceRequest.TopicProduceData
    partition_data = [topic_data.PartitionProduceData(index=0, records=b"")]
    added = internals.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0])
    fields: dict[Any, dict[str, Any]] = {
        internals.FindCoordinatorRequest: {"key": "id", "key_type": 1, "max_version": 2},
        internals.InitProducerIdRequest: {"transactional_id": "id", "transaction_timeout_ms": 1, **producer, "max_version": 3},
        internals.AddPartitionsToTxnRequest: {
            "v3_and_below_transactional_id": "id",
            **{f"v3_and_below_{name}": value for name, value in producer.items()},
            "v3_and_below_topics": [added],
            "max_version": 1,
        },
        internals.EndTxnRequest: {"transactional_id": "id", **producer, "committed": True, "max_version": 1},
        internals.ProduceRequest: {
            "transactional_id": "id",
            "acks": -1,
            "timeout_ms": 1,
            "topic_data": [topic_data(name="t", partition_data=partition_data)],
            "max_version": 8,
        },
    }
    for request, given in fields.items():
        try:
            made = request(**given)
        except (TypeError, ValueError) as error:
            pytest.fail(f"{request.__name__} takes other fields {ADAPT}: {error}")
        lost = [name for name, value in given.items() if name != "max_version" and getattr(made, name, None) != value]
        assert not lost, f"{request.__name__} lost {', '.join(lost)} {ADAPT}"


def test_client_arguments_and_sasl_mechanisms_are_listed() -> None:
    expected = {"bootstrap_servers", "request_timeout_ms", "security_protocol", "ssl_context", "sasl_oauth_token_provider"}
    assert expected <= ADMIN_DEFAULTS.keys(), f"KafkaAdminClient.DEFAULT_CONFIG lists other arguments {ADAPT}"
    mechanisms = {"GSSAPI", "OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert mechanisms <= SASL_MECHANISMS.keys(), f"SASL_MECHANISMS lists other mechanisms {ADAPT}"


def test_producer_asks_for_metadata_as_often_as_its_cluster_allows() -> None:
    cluster = ClusterMetadata(retry_backoff_ms=100)
    cluster._last_refresh_ms = time.monotonic() * 1000
    cluster.request_update()
    assert cluster.ttl() > 50, f"the pause before the second request is gone {ADAPT}"
    cluster.config["retry_backoff_ms"] = 0
    assert cluster.ttl() == 0, f"the pause has another name {ADAPT}"
    assert "self._metadata = " in inspect.getsource(KafkaProducer.__init__), f"the cluster has another name {ADAPT}"


def test_tls_needs_wrap_socket_only(server: Server) -> None:
    class Recorder(Tls):
        called = False

        def wrap_socket(self, *arguments: Any, **keywords: Any) -> ssl.SSLSocket:
            Recorder.called = True
            return super().wrap_socket(*arguments, **keywords)

    port = server(lambda connection: connection.sendall(b"not TLS"))
    try:
        connect(port, security_protocol="SSL", ssl_context=Recorder())
    except AttributeError as error:
        pytest.fail(f"TLS calls more than wrap_socket: {error}, {ADAPT}, tls.Tls")
    assert Recorder.called, f"TLS no longer calls wrap_socket {ADAPT}, tls.Tls"


def test_failed_handshake_has_its_error_as_context(server: Server) -> None:
    error = connect(server(lambda connection: connection.sendall(b"not TLS")), security_protocol="SSL", ssl_context=Tls())
    assert isinstance(handshake_error(error), ssl.SSLError), f"the SSLError is no longer the context of {error!r} {ADAPT}"


def test_refused_connection_is_no_handshake_error() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = connect(unused.getsockname()[1], security_protocol="SSL", ssl_context=Tls())
    assert not (handshake_error(error) or tls_alert(error) or is_disconnect(error)), f"{error!r} means something else {ADAPT}"


def test_alert_after_the_handshake_is_the_first_argument(server: Server, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    certificates.authority(stores=False)
    certificates.signed("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates["server.pem"])
    context.load_verify_locations(certificates["ca.pem"])
    context.verify_mode = ssl.CERT_REQUIRED

    def demand_certificate(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as secured:
            with pytest.raises(ssl.SSLError):
                secured.do_handshake()
            # Open until the client closes, so that its next write does not fail before it reads the alert.
            while os.read(secured.fileno(), 4096):
                pass

    trusting = Tls(certificates["ca.pem"].read_text())
    error = connect(server(demand_certificate), security_protocol="SSL", ssl_context=trusting)
    assert tls_alert(error) is not None, f"the TLS alert is no longer the first argument of {error!r} {ADAPT}"


def test_closed_connection_has_its_text(server: Server) -> None:
    # Reads first: closing a socket with unread data would reset the connection.
    error = connect(server(lambda connection: connection.recv(4096)))
    assert is_disconnect(error), f"a connection that the broker closes is now {error!r} {ADAPT}"


def test_close_still_fails_for_a_socket_with_two_waiters() -> None:
    class Client:
        closed = False

        def close(self) -> None:
            here, _there = socket.socketpair()
            net = NetworkSelector()
            for event in (selectors.EVENT_READ, selectors.EVENT_WRITE):
                net.register_event(here, event, lambda: None)
            here.close()
            self.closed = True
            net.unregister_event(here, selectors.EVENT_READ)
            pytest.fail("kafka-python no longer raises OSError here: remove close_connections")

    first, second = Client(), Client()
    close_connections(first, second)
    assert first.closed and second.closed


def test_group_offsets_are_fetched_with_the_requests_of_the_admin_client() -> None:
    used = {"_list_group_offsets_requests", "_list_group_offsets_process_response", "_find_coordinator_id"}
    assert used <= set(dir(KafkaAdminClient)), f"KafkaAdminClient lacks one of {used} {ADAPT}, stable_group_offsets"
    assert "self._manager.run(self._async_list_group_offsets" in inspect.getsource(KafkaAdminClient.list_group_offsets)
    request = OffsetFetchRequest(groups=[], min_version=8, max_version=8)
    request.require_stable = True
    assert request.to_dict()["require_stable"] is True, f"OffsetFetchRequest has no require_stable {ADAPT}"


def test_crc32c_is_the_checksum_of_kafka_python() -> None:
    for data in (b"", b"123456789", bytes(range(256)) * 1000):
        assert crc32c.crc32c(memoryview(bytearray(data))) == calc_crc32c(data)
    assert crc32c.crc32c(b"123456789") == 0xE3069283


def test_metadata_of_no_topics_replaces_a_response_without_endpoint_type() -> None:
    class OldBroker:
        """An admin client with kafka-python's methods, and the answers of a broker 2.8."""

        def describe_cluster(self) -> None:
            raise KeyError("endpoint_type")

        def _get_cluster_metadata(self, topics: list[str]) -> dict[str, Any]:
            return {"cluster_id": "abc", "brokers": [{"node_id": 1}], "topics": topics}

        class _manager:
            @staticmethod
            def run(function: Callable[..., Any], *arguments: Any) -> Any:
                return function(*arguments)

    described: Any = OldBroker()
    assert internals.describe_cluster(described) == {"cluster_id": "abc", "brokers": [{"node_id": 1, "broker_id": 1}]}
    for name in ("describe_cluster", "_get_cluster_metadata"):
        assert hasattr(kafka.KafkaAdminClient, name), f"KafkaAdminClient has no {name} {ADAPT}"
