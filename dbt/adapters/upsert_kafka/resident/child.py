"""What a forked child of the resident does: it becomes the dbt process of a command, or cleans up after one that has ended.

`become` leaves nothing of the resident in the process: files, environment, working directory, signals and time zone are those of
the user's command, and the process ends as every Python process does. It does not free what it has in the shared JVM: its threads
may start another job until the process has ended. Runs after the fork, so threads are allowed.
"""

from __future__ import annotations

import importlib
import io
import os
import signal
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TextIO

from dbt.adapters.upsert_kafka import embedded
from dbt.adapters.upsert_kafka.resident import link
from dbt.adapters.upsert_kafka.spark import shared_internals, shared_jvm
from dbt.adapters.upsert_kafka.spark.shared_internals import JvmEndedError


def become(request: Mapping[str, Any], files: list[int], connection: socket.socket, alive: int, log: str) -> NoReturn:
    """Run the dbt command of a request and exit.

    Args:
        files: stdin, stdout and stderr of the client.
        connection: to the resident.
        alive: a pipe that is closed when the resident has ended.
        log: the file for what a shared JVM prints.
    """
    _use_files(files)
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    importlib.invalidate_caches()
    if numpy := sys.modules.get("numpy"):
        # Python's own generator gets a new seed in a forked process, numpy's does not.
        numpy.random.seed()
    link.current = link.Link(connection)
    embedded.share_lock = link.current.uses_broker
    shared_jvm.offer(shared_jvm.Offer(link.current, request["environment"], log))
    threading.Thread(target=_end_with, args=(alive,), name="end with the resident", daemon=True).start()
    from dbt.cli.main import cli

    os.chdir(request["cwd"])
    sys.argv = [os.path.join(sysconfig.get_path("scripts"), "dbt"), *request["arguments"]]
    sys.exit(cli())


def clean_up(gateways: Iterable[Mapping[str, Any]], process: int) -> None:
    """End and free what a child that has ended left in the shared JVM.

    Args:
        gateways: port, secret and session of each of the child's gateway servers.
        process: its id.

    Raises:
        Py4JError: the JVM did not do it.
    """
    for gateway in gateways:
        try:
            shared_internals.clean_up(gateway["port"], gateway["secret"], gateway["session"], shared_jvm.job_tag(process))
        except JvmEndedError as error:
            print(f"Nothing to clean up for process {process}: {error!r}", file=sys.stderr)


def reset_signals() -> None:
    """Set the signals that the resident handles as a new Python process has them."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)


def _use_files(files: list[int]) -> None:
    """Make the client's files those of this process, with the encoding of a new process."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        opened = _opened(number, getattr(sys, f"__{name}__"))
        setattr(sys, name, opened)
        setattr(sys, f"__{name}__", opened)


def _opened(number: int, like: TextIO) -> TextIO:
    """A new stream for a file, with the encoding of the resident's stream and the buffer that Python gives this file."""
    # A stream closes its file when it is freed, and this one's file has the same number.
    _former_streams.append(like)
    if number and os.environ.get("PYTHONUNBUFFERED"):
        raw: Any = io.FileIO(number, "w", closefd=False)
        return io.TextIOWrapper(raw, encoding=like.encoding, errors=like.errors, write_through=True)
    return open(
        number,
        "w" if number else "r",
        buffering=1 if number == 2 or (number and os.isatty(number)) else -1,
        encoding=like.encoding,
        errors=like.errors,
        closefd=False,
    )


_former_streams: list[TextIO] = []


def _end_with(alive: int) -> None:
    """End this process as Ctrl-C does when the resident has ended."""
    while os.read(alive, 1):
        continue
    os.kill(os.getpid(), signal.SIGINT)
