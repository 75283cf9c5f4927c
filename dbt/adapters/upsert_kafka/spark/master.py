"""The Spark master: whether it is this machine, and whether a standalone one can be reached, before a JVM tries for minutes."""

from __future__ import annotations

import re
import socket

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError

SCHEME = "spark://"
SECONDS = 5


def is_local(master: str) -> bool:
    """Whether executors run in the JVM of the driver."""
    return bool(re.match(r"local(\[|$)", master))


def check(master: str | None) -> None:
    """Connect to the hosts of `spark://host:port,host:port`; other masters are not checked.

    Raises:
        UpsertKafkaError: none of them accepts a connection.
    """
    if master is None or not master.startswith(SCHEME):
        return
    tried = []
    for address in master.removeprefix(SCHEME).split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS).close()
        except (OSError, ValueError) as error:
            tried.append(f"{address}: {_reason(error)}")
        else:
            return
    raise UpsertKafkaError(
        f"Spark did not start with master '{master}': {'; '.join(tried)}. Check `master` in your profile; without it Spark runs "
        "on this machine."
    )


def _reason(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "host not found"
    if isinstance(error, TimeoutError):
        return f"no connection within {SECONDS} s"
    return "connection refused" if isinstance(error, ConnectionRefusedError) else str(error)
