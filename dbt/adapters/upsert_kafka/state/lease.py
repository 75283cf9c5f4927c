"""The lease of a running stream: who publishes to the topic now. Others are refused until it ends or its time is over.

The lease makes refusals early and clear. That two processes never mix their batches does not depend on it: a batch is checked
with the query and batch of the state record, under exactly-once inside its transaction.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from uuid import uuid4

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.state.record import Lease, Stream, now_text

SECONDS = 60.0
"""A stream that was killed blocks others for at most this long."""
RENEW_SECONDS = 15.0

_ID = str(uuid4())
_STARTED_AT = now_text()


def own() -> Lease:
    """A lease of this process that begins now."""
    return Lease(_ID, socket.gethostname(), os.getpid(), _machine(), _STARTED_AT, round(time.time() + SECONDS, 1))


def holder(stream: Stream | None) -> Lease | None:
    """The lease of another process that runs the stream now; None if there is none, or if its process is gone."""
    lease = stream.lease if stream is not None else None
    if lease is None or lease.id == _ID or lease.until <= time.time() or _is_gone(lease):
        return None
    return lease


def check(model: str, topic: str, stream: Stream | None) -> None:
    """Refuse to publish to a topic while its stream runs in another process.

    Raises:
        GuardError: names host, process and start of the stream.
    """
    if lease := holder(stream):
        left = max(1, round(lease.until - time.time()))
        raise GuardError(
            f"model {model}: topic '{topic}' is published by a running stream ({lease}). Nothing was written. Stop it first "
            f"(Ctrl-C or SIGTERM); if it was killed, its lease ends in {left} s"
        )


def _is_gone(lease: Lease) -> bool:
    """Whether the process is known to have ended. Only its own machine knows."""
    if not lease.machine or lease.machine != _machine():
        return False
    try:
        os.kill(lease.process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    # The process may be another one with the same number: this one, for example.
    return lease.process == os.getpid() or _is_zombie(lease.process)


def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:  # not Linux
        return ""


def _is_zombie(process: int) -> bool:
    """Whether a process has ended and its parent has not noticed yet."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
