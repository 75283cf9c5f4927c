"""Whether a Kafka broker answers at an address, and why not: each reason is a message of its own, within seconds.

Speaks as much of Kafka's protocol as is needed to tell a broker from another server, and a listener with TLS or SASL from one
without. Leaves to `login` why a broker refuses a login.
"""

from __future__ import annotations

import hashlib
import pickle
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.upsert_kafka.errors import KafkaUnreachableError, UpsertKafkaError

logger = AdapterLogger("upsert_kafka")

TIMEOUT_SECONDS = 5.0
FAILURE_IS_KNOWN_SECONDS = 15.0
"""How long a failure is reported again without another try: all models of a run fail with the first one's reason."""
API_VERSIONS, METADATA = 18, 3
METADATA_VERSION = 4
"""Of brokers since 0.11. Its request names topics explicitly, so that a request for no topic is possible."""
TLS_ALERT = b"\x15\x03"

_locks: dict[bytes, threading.Lock] = {}
_reached: set[bytes] = set()
_failed: dict[bytes, tuple[float, str]] = {}


def begin(arguments: Callable[[], Mapping[str, Any]]) -> None:
    """Start the check in the background, while Spark starts; a failure is logged at once. `check` waits for its end.

    Args:
        arguments: returns kafka-python's client arguments.
    """

    def run() -> None:
        try:
            check(arguments())
        except UpsertKafkaError as error:
            # A command that needs no topic succeeds without Kafka.
            logger.info(str(error.msg))

    threading.Thread(target=run, daemon=True).start()


def check(arguments: Mapping[str, Any]) -> None:
    """Check once per process that a broker answers at one of the addresses.

    Args:
        arguments: kafka-python's client arguments.

    Raises:
        KafkaUnreachableError: none answers; the message has the reason of each address.
    """
    digest = hashlib.sha256(pickle.dumps(arguments)).digest()
    with _locks.setdefault(digest, threading.Lock()):
        if digest in _reached:
            return
        failed_at, message = _failed.get(digest, (0.0, ""))
        if not message or time.monotonic() - failed_at > FAILURE_IS_KNOWN_SECONDS:
            message = _failure(arguments["bootstrap_servers"], arguments.get("security_protocol", "PLAINTEXT"))
            _failed[digest] = (time.monotonic(), message)
        if message:
            raise KafkaUnreachableError(message)
        _reached.add(digest)


def _failure(servers: Sequence[str], protocol: str) -> str:
    """Why no server answers, in one line; empty if one does."""
    with ThreadPoolExecutor(len(servers)) as threads:
        reasons = list(threads.map(lambda server: _reason(server, protocol), servers))
    if None in reasons:
        return ""
    listed = "; ".join(f"'{server}': {reason}" for server, reason in zip(servers, reasons, strict=True))
    return f"No Kafka broker answered at {listed}"


def _reason(server: str, protocol: str) -> str | None:
    """Why a server can't be used, and what to check; None if it can."""
    host, _, port = server.rpartition(":")
    if not port.isdecimal():
        return "not an address. Write it as host:port"
    try:
        addresses = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except socket.gaierror:
        return "host not found. Check the host name in bootstrap_servers"
    try:
        with _connected([address[4] for address in addresses]) as connection:
            return None if protocol in ("SSL", "SASL_SSL") else _protocol_problem(connection, protocol)
    except ConnectionRefusedError:
        return "connection refused. Check the port in bootstrap_servers, and that the broker is running"
    except TimeoutError:
        return f"no connection within {TIMEOUT_SECONDS:.0f} s. Check bootstrap_servers and firewalls"
    except OSError as error:
        return f"{error.strerror or type(error).__name__}. Check bootstrap_servers and the network"


def _connected(addresses: Sequence[Any]) -> socket.socket:
    """A connection to the first address that accepts one."""
    *others, last = addresses
    for address in others:
        try:
            return socket.create_connection(address[:2], TIMEOUT_SECONDS)
        except OSError as error:
            logger.debug(f"connection to {address}: {error!r}")
    return socket.create_connection(last[:2], TIMEOUT_SECONDS)


def _protocol_problem(connection: socket.socket, protocol: str) -> str | None:
    """Why the server at the other end does not understand a client without TLS."""
    expects_tls = (
        "the listener expects TLS. Set security.protocol to SSL or SASL_SSL in the kafka: block of your profile, or use the port "
        "of a listener without TLS"
    )
    try:
        connection.sendall(_request(API_VERSIONS, 0, b""))
        head = _received(connection, 4)
        if head.startswith(TLS_ALERT):
            return expects_tls
        size = struct.unpack(">i", head)[0] if len(head) == 4 else 0
        if len(head) == 4 and not 10 <= size <= 100_000:
            return "not a Kafka broker: another server answers there. Check the port in bootstrap_servers"
        if not size or len(_received(connection, size)) < size:
            return f"the connection was closed before an answer: {expects_tls}"
    except TimeoutError:
        return f"connected, but no answer within {TIMEOUT_SECONDS:.0f} s: not a Kafka broker, or {expects_tls}"
    except ConnectionError:
        return f"the connection was closed before an answer: {expects_tls}"
    return _sasl_problem(connection, protocol)


def _sasl_problem(connection: socket.socket, protocol: str) -> str | None:
    """Whether client and listener disagree about a login. A broker closes the connection of a client that must log in."""
    try:
        connection.sendall(_request(METADATA, METADATA_VERSION, struct.pack(">i?", 0, False)))
        answered = len(_received(connection, 4)) == 4
    except (TimeoutError, ConnectionError):
        answered = False
    if protocol != "PLAINTEXT" and answered:
        return (
            f"the listener expects no login. Set security.protocol, which is {protocol}, to PLAINTEXT in the kafka: block of "
            "your profile, or use the port of a listener with SASL"
        )
    if answered or protocol != "PLAINTEXT":
        return None
    return (
        "the listener expects a login (SASL). Set security.protocol, sasl.mechanism and sasl.jaas.config in the kafka: block of "
        "your profile"
    )


def _request(api: int, version: int, body: bytes) -> bytes:
    client = b"dbt-upsert-kafka"
    message = struct.pack(">hhih", api, version, 1, len(client)) + client + body
    return struct.pack(">i", len(message)) + message


def _received(connection: socket.socket, size: int) -> bytes:
    """Up to `size` bytes; fewer if the connection ends."""
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data
