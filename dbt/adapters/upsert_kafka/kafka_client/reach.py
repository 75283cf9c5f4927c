"""Whether a Kafka broker answers at an address, and why not: each reason is a message of its own, within seconds.

Checks once per process and remembers the result, also a refused login. Speaks as much of Kafka's protocol as is needed to tell a
broker from another server, and a listener with TLS or SASL from one without. Leaves to `login` why a broker refuses a client.
"""

from __future__ import annotations

import hashlib
import pickle
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.upsert_kafka import dbt_internals
from dbt.adapters.upsert_kafka.errors import KafkaUnreachableError, UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import login

logger = AdapterLogger("upsert_kafka")

TIMEOUT_SECONDS = 5.0
FAILURE_IS_KNOWN_SECONDS = 15.0
"""How long a failure is reported again without another try: all models of a run fail with the first one's reason."""
API_VERSIONS, METADATA = 18, 3
METADATA_VERSION = 4
"""Of brokers since 0.11. Its request names topics explicitly, so that a request for no topic is possible."""
TLS_ALERT = b"\x15\x03"

WITH_TLS = ("SSL", "SASL_SSL")
NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING"})
"""OpenSSL's reasons if the other end does not speak TLS."""


@dataclass(frozen=True)
class Failure:
    """Why a client can't use a cluster."""

    message: str
    at: float
    is_refusal: bool = False
    """Whether a broker refused the client. It would again, and may lock the account."""
    command: str = ""
    """The id of the dbt command."""

    @property
    def is_known(self) -> bool:
        """Whether it is reported without another try."""
        if self.is_refusal:
            return self.command == dbt_internals.invocation_id()
        return time.monotonic() - self.at < FAILURE_IS_KNOWN_SECONDS


_locks: dict[bytes, threading.Lock] = {}
_reached: set[bytes] = set()
_failed: dict[bytes, Failure] = {}


def begin(client: Callable[[], tuple[Mapping[str, Any], str]]) -> None:
    """Start the check in the background, while Spark starts; a failure is logged at once. `check` waits for its end.

    Args:
        client: returns the arguments of `check`.
    """

    def run() -> None:
        try:
            check(*client())
        except UpsertKafkaError as error:
            # A command that needs no topic succeeds without Kafka.
            logger.info(str(error.msg))

    threading.Thread(target=run, daemon=True).start()


def check(arguments: Mapping[str, Any], user: str) -> None:
    """Check once per process that a broker answers at one of the addresses, and accepts the client.

    Args:
        arguments: kafka-python's client arguments.
        user: the client's user, for messages.

    Raises:
        KafkaUnreachableError: none answers; the message has the reason of each address. Or one refuses the client.
    """
    digest = _digest(arguments)
    with _locks.setdefault(digest, threading.Lock()):
        if digest in _reached:
            return
        known = _failed.get(digest)
        failure = known if known is not None and known.is_known else _check(arguments, user)
        if failure is not None:
            _failed[digest] = failure
            raise KafkaUnreachableError(failure.message)
        _reached.add(digest)


def remember(arguments: Mapping[str, Any], message: str) -> None:
    """Remember that a client which had been checked could not connect: other models don't wait for the same again."""
    _reached.discard(_digest(arguments))
    _failed[_digest(arguments)] = Failure(message, time.monotonic())


def _digest(arguments: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(pickle.dumps(arguments)).digest()


def _check(arguments: Mapping[str, Any], user: str) -> Failure | None:
    if message := _failure(arguments):
        return Failure(message, time.monotonic())
    try:
        login.check(arguments, user)
    except KafkaUnreachableError as error:
        return Failure(str(error.msg), time.monotonic(), is_refusal=True, command=dbt_internals.invocation_id())
    return None


def _failure(arguments: Mapping[str, Any]) -> str:
    """Why no server answers, in one line; empty if one does."""
    servers: Sequence[str] = arguments["bootstrap_servers"]
    with ThreadPoolExecutor(len(servers)) as threads:
        reasons = list(threads.map(lambda server: _reason(server, arguments), servers))
    if None in reasons:
        return ""
    listed = "; ".join(f"'{server}': {reason}" for server, reason in zip(servers, reasons, strict=True))
    return f"No Kafka broker answered at {listed}"


def _reason(server: str, arguments: Mapping[str, Any]) -> str | None:
    """Why a server can't be used, and what to check; None if it can."""
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    protocol = arguments.get("security_protocol", "PLAINTEXT")
    if not port.isdecimal():
        return "not an address. Write it as host:port"
    try:
        addresses = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except socket.gaierror:
        return "host not found. Check the host name in bootstrap_servers"
    try:
        with _connected([address[4] for address in addresses]) as connection:
            if protocol in WITH_TLS:
                return _tls_problem(connection, protocol, arguments["ssl_context"], host)
            return _protocol_problem(connection, protocol)
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


def _tls_problem(connection: socket.socket, protocol: str, context: Any, host: str) -> str | None:
    """Why the server does not understand a client with TLS; None also if TLS itself fails, which `login` reports."""
    without = protocol.replace("SASL_SSL", "SASL_PLAINTEXT").replace("SSL", "PLAINTEXT")
    no_tls = (
        f"the listener expects no TLS. Set security.protocol, which is {protocol}, to {without} in the kafka: block of your "
        "profile, or use the port of a listener with TLS"
    )
    try:
        secure = context.wrap_socket(connection, server_hostname=host)
    except TimeoutError:
        return f"connected, but no answer to the TLS handshake within {TIMEOUT_SECONDS:.0f} s: not a Kafka broker, or {no_tls}"
    except ConnectionError:
        return f"the connection was closed during the TLS handshake: {no_tls}"
    except ssl.SSLError as error:
        if isinstance(error, ssl.SSLEOFError) or error.reason in NO_TLS:
            return f"the TLS handshake failed: {no_tls}"
        return None
    with secure:
        try:
            return _protocol_problem(secure, protocol)
        except ssl.SSLError as error:
            # With TLS 1.3 a broker refuses the client's certificate after the handshake.
            logger.debug(f"connection to {host}: {error!r}")
            return None


def _protocol_problem(connection: socket.socket, protocol: str) -> str | None:
    """Why the server at the other end does not understand a client of Kafka with this security.protocol."""
    has_tls = protocol in WITH_TLS
    expects_tls = (
        "the listener expects TLS. Set security.protocol to SSL or SASL_SSL in the kafka: block of your profile, or use the port "
        "of a listener without TLS"
    )
    closed = None if has_tls else f"the connection was closed before an answer: {expects_tls}"
    try:
        connection.sendall(_request(API_VERSIONS, 0, b""))
        head = _received(connection, 4)
        if head.startswith(TLS_ALERT):
            return expects_tls
        size = struct.unpack(">i", head)[0] if len(head) == 4 else 0
        if len(head) == 4 and not 10 <= size <= 100_000:
            return "not a Kafka broker: another server answers there. Check the port in bootstrap_servers"
        if not size or len(_received(connection, size)) < size:
            # With TLS the broker may have refused the client's certificate.
            return closed
    except TimeoutError:
        maybe = ". Check the port in bootstrap_servers" if has_tls else f", or {expects_tls}"
        return f"connected, but no answer within {TIMEOUT_SECONDS:.0f} s: not a Kafka broker{maybe}"
    except ConnectionError:
        return closed
    return _sasl_problem(connection, protocol)


def _sasl_problem(connection: socket.socket, protocol: str) -> str | None:
    """Whether client and listener disagree about a login. A broker closes the connection of a client that must log in."""
    try:
        connection.sendall(_request(METADATA, METADATA_VERSION, struct.pack(">i?", 0, False)))
        answered = len(_received(connection, 4)) == 4
    except (TimeoutError, ConnectionError):
        answered = False
    without, logs_in = protocol.removeprefix("SASL_"), protocol.startswith("SASL_")
    if logs_in and answered:
        return (
            f"the listener expects no login. Set security.protocol, which is {protocol}, to {without} in the kafka: block of "
            "your profile, or use the port of a listener with SASL"
        )
    if answered or logs_in:
        return None
    return (
        f"the listener expects a login (SASL). Set security.protocol, which is {protocol}, to SASL_{protocol}, and "
        "sasl.mechanism and sasl.jaas.config in the kafka: block of your profile"
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
