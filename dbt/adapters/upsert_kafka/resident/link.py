"""What a child asks and reports to the resident, over a socket of its own. In a process of plain dbt there is no link.

Used by several threads: Spark starts in the background.
"""

from __future__ import annotations

import socket
import threading
from typing import Any

from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.resident import protocol
from dbt.adapters.upsert_kafka.resident.protocol import Message

logger = AdapterLogger("upsert_kafka")

current: Link | None = None


class Link:
    """The child's end; also `spark.shared_jvm.Owner`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def ask(self, fingerprint: dict[str, str]) -> Message:
        return self._answer({"ask": fingerprint})

    def unreachable(self, port: int, fingerprint: dict[str, str]) -> Message:
        return self._answer({"unreachable": port, "fingerprint": fingerprint})

    def started(self, jvm: dict[str, Any], stdin: int) -> Message:
        return self._answer({"started": jvm}, stdin)

    def failed(self) -> None:
        self._send({"left": True})

    def attached(self, port: int, secret: str, session_id: str | None) -> None:
        self._send({"attached": {"port": port, "secret": secret, "session": session_id}})

    def uses_broker(self, lock: int) -> None:
        """Let the resident have the lock with which the embedded broker runs, so that it runs until the next command."""
        self._send({"broker": True}, lock)

    def idle_minutes(self, minutes: float) -> None:
        self._send({"idle_minutes": minutes})

    def _send(self, message: Message, *files: int) -> None:
        try:
            with self._lock:
                protocol.send(self._connection, message, files)
        except OSError as error:
            # `child` ends this process because of it.
            logger.debug(f"The resident dbt has ended: {error!r}")

    def _answer(self, message: Message, *files: int) -> Message:
        """Only one thread starts Spark, so the next message is the answer; others may send meanwhile."""
        self._send(message, *files)
        try:
            return protocol.receive(self._connection)[0]
        except (EOFError, OSError) as error:
            raise UpsertKafkaError("the resident dbt has ended. Run the command again.") from error


def report_idle_minutes(minutes: float) -> None:
    """Report the profile's idle time; plain dbt has none."""
    if current is not None:
        current.idle_minutes(minutes)
