"""Logs in to a secured cluster, and reports why a broker refuses the client. `reach` remembers the result.

kafka-python's clients retry a refused login without an error, and repeated refusals may lock an account. A broker that does not
answer at all is no error here: the client that connects next reports it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from dbt.adapters.events.logging import AdapterLogger
from kafka.errors import KafkaError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError

from dbt.adapters.upsert_kafka.errors import KafkaUnreachableError
from dbt.adapters.upsert_kafka.kafka_client.internals import (
    close_connections,
    handshake_error,
    is_disconnect,
    open_connections,
    tls_alert,
)

logger = AdapterLogger("upsert_kafka")

TIMEOUT_MS = 10_000


def check(arguments: Mapping[str, Any], user: str) -> None:
    """Log in to the first server that answers.

    Args:
        arguments: kafka-python's client arguments.
        user: the client's user, for messages.

    Raises:
        KafkaUnreachableError: a server refuses this client.
    """
    if "security_protocol" not in arguments:
        return
    for server in arguments["bootstrap_servers"]:
        error = _connect(arguments, server)
        if error is not None and is_disconnect(error):
            # A broker that refuses a login closes the connection, and its answer may be lost. A second try often gets the answer;
            # a broker that was shutting down no longer accepts the connection.
            error = _connect(arguments, server)
        if error is None:
            return
        logger.debug(f"connection to {server}: {error!r}")
        if refusal := _refusal(error, user, arguments.get("sasl_mechanism")):
            raise KafkaUnreachableError(f"Kafka at '{server}': {refusal} in the kafka: block of your profile")


def _connect(arguments: Mapping[str, Any], server: str) -> KafkaError | None:
    """Connect to one server and disconnect; returns the error if that failed."""
    net, manager = open_connections({**arguments, "bootstrap_servers": [server]})

    async def connected() -> None:
        await manager.get_connection(manager.cluster.bootstrap_brokers()[0].node_id, TIMEOUT_MS)

    try:
        net.run(connected)
    except KafkaError as error:
        return error
    finally:
        close_connections(manager, net)
    return None


def _refusal(error: KafkaError, user: str, mechanism: str | None) -> str | None:
    """Why the server refused the client and what to check; None if the server only did not answer."""
    if isinstance(error, SaslAuthenticationFailedError):
        return f"the broker refused the login of {user} ({mechanism}), wrong name or password: check sasl.*"
    if isinstance(error, UnsupportedSaslMechanismError):
        return f"the broker does not support sasl.mechanism {mechanism} on this listener: check sasl.mechanism"
    if failed := handshake_error(error):
        if isinstance(failed, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({failed.verify_message}): check ssl.truststore.*"
        return f"the TLS handshake failed ({_reason(failed)}): check security.protocol and ssl.*"
    if alert := tls_alert(error):
        return f"the broker refused the client's certificate ({_reason(alert)}): check ssl.keystore.*"
    if mechanism and is_disconnect(error):
        return (
            f"the broker closed the connection when {user} logged in ({mechanism}), maybe because of a wrong name or password: "
            "check security.protocol and sasl.*"
        )
    return None


def _reason(error: OSError) -> str:
    """The error without OpenSSL's file and line numbers."""
    code = getattr(error, "reason", None)
    return str(code).replace("_", " ").lower() if code else error.strerror or type(error).__name__
