"""Whether a secured cluster lets this client in, asked once in a process and told with the reason.

kafka-python's clients would go on trying without a word, and many refused logins lock an account. A cluster that does not answer
at all is not judged here: that is for who connects next.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dbt.adapters.events.logging import AdapterLogger
from kafka.errors import KafkaError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from dbt.adapters.upsert_kafka.errors import KafkaUnreachableError

logger = AdapterLogger("upsert_kafka")

TIMEOUT_MS = 10_000
CLOSED = "socket disconnected"

_let_in: set[bytes] = set()


def check(arguments: Mapping[str, Any], user: str) -> None:
    """Log in to the first server that answers.

    Args:
        arguments: kafka-python's, of a client to be.
        user: who that is, in messages.

    Raises:
        KafkaUnreachableError: a server refuses this client.
    """
    who = hashlib.sha256(pickle.dumps(arguments)).digest()
    if "security_protocol" not in arguments or who in _let_in:
        return
    for server in arguments["bootstrap_servers"]:
        error = _connect(arguments, server)
        if error is not None and CLOSED in str(error):
            # What a broker does that refuses, and its answer may be lost; one that is just stopped does it once.
            error = _connect(arguments, server)
        if error is None:
            _let_in.add(who)
            return
        logger.debug(f"connection to {server}: {error!r}")
        if reason := _refusal(error, user, arguments.get("sasl_mechanism")):
            raise KafkaUnreachableError(f"Kafka at '{server}': {reason} in the kafka: block of your profile")


def _connect(arguments: Mapping[str, Any], server: str) -> KafkaError | None:
    """Connect to one server and leave again."""
    single = {**arguments, "bootstrap_servers": [server]}
    net = NetworkSelector(**single)
    manager = KafkaConnectionManager(net, **single)

    async def connected() -> None:
        await manager.get_connection(manager.cluster.bootstrap_brokers()[0].node_id, TIMEOUT_MS)

    try:
        net.run(connected)
    except KafkaError as error:
        return error
    finally:
        # kafka-python fails at a socket that is waited for both ways when it is closed; closed it is all the same.
        with suppress(OSError):
            manager.close()
        with suppress(OSError):
            net.close()
    return None


def _refusal(error: KafkaError, user: str, mechanism: str | None) -> str | None:
    """Why, and what to check; None where the server only did not answer."""
    text = str(error)
    detail = text.split(" (_ssl")[0].split("] ")[-1].rstrip(".")
    if isinstance(error, SaslAuthenticationFailedError):
        return f"the broker refused {user} ({mechanism}): check sasl.*"
    if isinstance(error, UnsupportedSaslMechanismError):
        return f"the broker takes no sasl.mechanism {mechanism} at this address: check it"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"its certificate is not trusted ({detail.split('verify failed: ')[-1]}): check ssl.truststore.*"
    if "Handshake failed" in text:
        return f"the TLS handshake failed ({detail}): check security.protocol and ssl.*"
    if "ALERT" in text:
        return f"the broker refused the client's certificate ({detail}): check ssl.keystore.*"
    if mechanism and CLOSED in text:
        return f"the broker closed the connection when {user} logged in ({mechanism}): check security.protocol and sasl.*"
    return None
