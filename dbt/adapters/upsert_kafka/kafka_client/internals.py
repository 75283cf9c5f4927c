"""The private and unstable parts of kafka-python that this project uses; no other module imports them.

Each entry says why it exists and which public API is missing. tests/unit/kafka_client/test_internals.py fails with a sentence if
a release of kafka-python moved or changed one. Spark workers get this module by value (see sinks/transaction.py), because this
package may not be installed there: it imports none of its neighbours.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import kafka
from kafka import KafkaAdminClient, KafkaProducer, OffsetAndMetadata, TopicPartition

try:
    # The result of a request in flight. The transaction protocol also creates failed ones. No public class exists.
    from kafka.future import Future

    # Connections without an I/O thread: the caller sends, waits and receives. The transaction protocol sends record
    # batches that Spark tasks encoded, and the login check connects to one server once. KafkaProducer encodes its records itself
    # and can't continue the transaction of another process. KafkaAdminClient retries a refused login without an error.
    from kafka.net.manager import KafkaConnectionManager

    # The names of the SASL mechanisms that kafka-python implements. No public list exists.
    from kafka.net.sasl import SASL_MECHANISMS

    # The documentation of `sasl_oauth_token_provider` demands a subclass of this class. kafka-python exports it nowhere else.
    from kafka.net.sasl.oauth import AbstractTokenProvider
    from kafka.net.selector import NetworkSelector

    # The requests of a transactional producer. KafkaProducer sends them, but only for its own transaction (see above).
    from kafka.protocol.consumer import OffsetFetchRequest
    from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest
    from kafka.protocol.producer import (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        EndTxnRequest,
        InitProducerIdRequest,
        ProduceRequest,
        TxnOffsetCommitRequest,
    )
except ImportError as error:
    raise ImportError(
        f"dbt-upsert-kafka can't use kafka-python {kafka.__version__}, which moved a module or a name ({error}): "
        "install a version that the dependencies of dbt-upsert-kafka allow"
    ) from error

__all__ = [
    "ADMIN_DEFAULTS",
    "SASL_MECHANISMS",
    "AbstractTokenProvider",
    "AddOffsetsToTxnRequest",
    "AddPartitionsToTxnRequest",
    "ApiVersionsRequest",
    "EndTxnRequest",
    "FindCoordinatorRequest",
    "Future",
    "InitProducerIdRequest",
    "KafkaConnectionManager",
    "NetworkSelector",
    "OffsetFetchRequest",
    "ProduceRequest",
    "TxnOffsetCommitRequest",
    "asks_leaders_at_once",
    "close_connections",
    "describe_cluster",
    "handshake_error",
    "is_disconnect",
    "open_connections",
    "stable_group_offsets",
    "tls_alert",
]

# Every argument of the clients with its default. The signature is **configs, so inspect.signature does not show them.
ADMIN_DEFAULTS: Mapping[str, Any] = KafkaAdminClient.DEFAULT_CONFIG

# The only error that kafka-python distinguishes by its text alone: KafkaConnectionError stands for every lost connection.
_DISCONNECTED = "socket disconnected"


class Closable(Protocol):
    """A client, a connection manager or a selector of kafka-python."""

    def close(self) -> None: ...


def open_connections(arguments: Mapping[str, Any]) -> tuple[NetworkSelector, KafkaConnectionManager]:
    """The event loop and the connections of one client; the calling thread runs the loop."""
    net = NetworkSelector(**arguments)
    return net, KafkaConnectionManager(net, **arguments)


def close_connections(*clients: Closable) -> None:
    """Close clients in the given order.

    close() raises OSError if the event loop waits for a socket to become both readable and writable. The socket is closed anyway.
    """
    for client in clients:
        with suppress(OSError):
            client.close()


def asks_leaders_at_once(producer: KafkaProducer) -> KafkaProducer:
    """Let a new producer ask for the leaders of its first topic without a pause.

    It asks for the brokers when it is created, and waits 100 ms between two such requests. Its argument `retry_backoff_ms` does
    not change that.
    """
    producer._metadata.config["retry_backoff_ms"] = 5
    return producer


def stable_group_offsets(
    admin: KafkaAdminClient, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """`list_group_offsets` of one group that raises UnstableOffsetCommitError while a transaction that commits them is open.

    The public method returns the offsets before that transaction, and has no argument for it (`require_stable` in the protocol).
    Brokers before Kafka 2.5 do the same.
    """

    async def fetch() -> dict[TopicPartition, OffsetAndMetadata]:
        [(_, request)] = admin._list_group_offsets_requests({group: list(partitions)})
        if admin._manager.broker_version_data.api_version(OffsetFetchRequest) >= 7:
            request.require_stable = True
        answer = await admin._manager.send(request, node_id=await admin._find_coordinator_id(group))
        return admin._list_group_offsets_process_response(answer, group_id=group)[group]

    return admin._manager.run(fetch)


def handshake_error(error: BaseException) -> OSError | None:
    """The error that ended the TLS handshake, an `ssl.SSLError` in most cases; None if the handshake was not the problem.

    kafka-python raises KafkaConnectionError while it handles that error, so Python keeps it as the context.
    """
    return error.__context__ if isinstance(error.__context__, OSError) else None


def tls_alert(error: BaseException) -> ssl.SSLError | None:
    """The TLS alert by which the broker ended a connection after the handshake, None if it did not.

    With TLS 1.3 a broker refuses a client's certificate this way. kafka-python passes the error on as the first argument.
    """
    inner = error.args[0] if error.args else None
    # OpenSSL's reason codes of alerts contain ALERT: TLSV13_ALERT_CERTIFICATE_REQUIRED, SSLV3_ALERT_BAD_CERTIFICATE.
    return inner if isinstance(inner, ssl.SSLError) and "ALERT" in (inner.reason or "") else None


def is_disconnect(error: BaseException) -> bool:
    """Whether the broker closed the connection without an answer."""
    return error.args == (_DISCONNECTED,)


def describe_cluster(admin: KafkaAdminClient) -> dict[str, Any]:
    """The id of the cluster and its brokers.

    Why: brokers 2.8 to 3.6 answer with the first version of the response, which has no `endpoint_type`.
    Missing: `KafkaAdminClient.describe_cluster` raises a KeyError for such a response. For still older brokers it asks for the
    metadata of no topics, which every broker answers.
    """
    try:
        return dict(admin.describe_cluster())
    except KeyError:
        metadata = admin._manager.run(admin._get_cluster_metadata, [])
        brokers = [{**broker, "broker_id": broker["node_id"]} for broker in metadata["brokers"]]
        return {"cluster_id": metadata["cluster_id"], "brokers": brokers}
