"""The start of the resident process: its imports, its socket, and what it computes for its children while it is idle.

Leaves to `server` what it serves. It has no threads.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import signal
import socket
import sys
import sysconfig
from collections.abc import Iterator

from dbt.adapters.upsert_kafka import credentials, dbt_internals, late_imports
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.resident import child, protocol
from dbt.adapters.upsert_kafka.resident.server import Resident, log

# What dbt's commands import when they run. Without pandas: pyarrow, which it imports, has a thread.
IMPORTED = (
    "dbt.cli.main",
    "dbt.adapters.upsert_kafka.plugin",
    "agate",
    *(f"dbt.task.{task}" for task in ("build", "clone", "compile", "debug", "list", "retry", "run", "run_operation", "seed")),
    *(f"dbt.task.{task}" for task in ("show", "snapshot", "test", "docs.generate")),
    "dbt.parser.manifest",
    "pyspark.sql.functions",
    *late_imports.MODULES,
)


def main(folder: str, lock: int) -> None:
    """Serve the project whose resident's folder this is. stdout gets the line `ready`, or ends.

    Args:
        lock: an open file. Its lock keeps others from starting a resident before this one has its socket.
    """
    os.chdir(folder)
    if not protocol.is_private(os.curdir):
        sys.exit(f"{folder} is accessible to other users")
    # As the console script `dbt` has it.
    sys.path.insert(0, sysconfig.get_path("scripts"))
    # Threads of a library would not exist in children.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in IMPORTED:
        importlib.import_module(name)
    dbt_internals.compile_schemas()
    credentials.UpsertKafkaCredentials.json_schema()
    resident = Resident(_listen(), os.pipe(), _wakeup(), warming_up=_warm_up())
    os.close(lock)
    try:
        os.write(1, b"ready\n")
    except BrokenPipeError:
        log("the client that has started this process did not wait for it")
    # From now on it prints to its log.
    os.dup2(2, 1)
    gc.collect()
    gc.freeze()
    found = resident.serve()
    if found is None:
        resident.close()
        return
    child.become(found.request, found.files, found.link, resident.alive[0], os.path.join(folder, protocol.LOG))


def _warm_up() -> Iterator[None]:
    """Compute, in small steps, what every child would compute again. It is the same for all projects."""
    yield from dbt_internals.compile_serializers(credentials.UpsertKafkaCredentials, UpsertKafkaRelation)
    # dbt takes the stack when it creates the adapter, and `inspect` looks at each imported module first.
    inspect.stack()
    yield
    gc.collect()
    gc.freeze()


def _listen() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # This process has the lock, so nobody else is doing the same.
    if os.path.lexists(protocol.SOCKET):
        os.unlink(protocol.SOCKET)
    before = os.umask(0o177)
    listener.bind(protocol.SOCKET)
    os.umask(before)
    listener.listen(64)
    return listener


def _wakeup() -> tuple[int, int]:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return reading, writing
