"""The project's own broker: a real Apache Kafka, there as long as a process of this project needs it.

`ensure_running` gives its address to any number of threads and processes; the last one to end, however it ends, takes the broker
with it. Topics stay in `<project>/.upsert_kafka/broker` for the next command. What is sent to it is everybody else's business.

Locks of the kernel, which no kill can leave behind, say who is there:

    users.lock       shared, by every process that uses the broker; the supervisor stops the broker when it gets it exclusively
    supervisor.lock  exclusive, by the supervisor
    broker.json      exclusive, by supervisor and broker: locked means running, and the content is the address
    start.lock       exclusive, by whoever finds out whether there is a broker and starts one if not
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.upsert_kafka.embedded.node import (
    Node,
    answers,
    end,
    formatted_as,
    free_ports,
    kafka_jars,
    new_cluster_id,
    read_state,
)
from dbt.adapters.upsert_kafka.errors import EmbeddedBrokerError
from dbt.adapters.upsert_kafka.java import find_java

STOP_SECONDS = 30
PORT_ATTEMPTS = 3

_logger = AdapterLogger("upsert_kafka")


@dataclass
class _Use:
    """This process's share in one project's broker."""

    folder: Path
    lock: IO[str]
    bootstrap_servers: str
    process: subprocess.Popen[bytes] | None
    """The supervisor, if this process started it: a child that must be waited for."""


_uses: dict[Path, _Use] = {}
_mutex = threading.RLock()


def broker_folder(project_dir: Path) -> Path:
    """Where a project's broker keeps everything that it has."""
    return Path(project_dir).resolve() / ".upsert_kafka" / "broker"


def ensure_running(project_dir: Path) -> str:
    """Bootstrap servers of the project's broker, which runs when this returns and until `stop` or the end of the process.

    Raises:
        UpsertKafkaError: no Java, no jars, or no start; the message says which and what to do.
    """
    folder = broker_folder(project_dir)
    with _mutex:
        use = _uses.get(folder)
        if use and _locked(folder / "broker.json"):
            return use.bootstrap_servers
        if use:
            _logger.warning(f"The embedded Kafka broker of {folder} ended unexpectedly; starting it again")
            _release(use)
        try:
            _uses[folder] = _share(folder)
        except OSError as e:
            reason = "no space left on the device" if e.errno == errno.ENOSPC else e
            raise EmbeddedBrokerError(f"The embedded Kafka broker can't use {folder}: {reason}.") from e
        return _uses[folder].bootstrap_servers


def is_running(project_dir: Path) -> bool:
    """Whether the project's broker is up, whoever started it."""
    return _locked(broker_folder(project_dir) / "broker.json")


def stop(project_dir: Path | None = None) -> bool:
    """Give up this process's share in the broker (of all projects if None) and wait for its end if nobody else uses it.

    Returns:
        Whether a broker goes on because another process uses it.
    """
    with _mutex:
        uses = [use for folder, use in _uses.items() if project_dir is None or folder == broker_folder(project_dir)]
        go_on = [_release(use) for use in uses]
    return any(go_on)


atexit.register(stop)


def _share(folder: Path) -> _Use:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.parent.chmod(0o700)
    (folder.parent / ".gitignore").write_text("*\n")
    # The lock is held until this process lets go or ends; waiting here is waiting for a broker that is just being stopped.
    lock = open(folder / "users.lock", "a")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with open(folder / "start.lock", "a") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            if address := _running(folder):
                return _Use(folder, lock, address, None)
            return _start(folder, lock)
    except BaseException:
        lock.close()
        raise


def _running(folder: Path) -> str | None:
    """Address of the broker that runs there; one that can't be used is ended."""
    state_file = folder / "broker.json"
    if not _locked(state_file):
        return None
    state = read_state(state_file)
    if state and _locked(folder / "supervisor.lock"):
        address = f"127.0.0.1:{state['port']}"
        if answers(address, str(state["cluster_id"])):
            return address
        end(int(state["supervisor"]))
    if state and "broker" in state:
        # Locked, so that number still is the broker's; without a supervisor nobody would ever stop it.
        end(int(state["broker"]))
    else:
        # Its supervisor stops the broker when the file is gone.
        state_file.unlink(missing_ok=True)
    deadline = time.monotonic() + STOP_SECONDS
    while _locked(state_file):
        if time.monotonic() > deadline:
            raise EmbeddedBrokerError(f"A Kafka broker that uses {folder} neither answers nor ends: stop its process")
        time.sleep(0.1)
    return None


def _start(folder: Path, lock: IO[str]) -> _Use:
    java, jars = str(find_java()), kafka_jars()
    last = read_state(folder / "broker.json") or {}
    cluster_id = formatted_as(folder) or new_cluster_id()
    preferred = [int(last[name]) for name in ("port", "controller_port") if name in last]
    for attempt in range(PORT_ATTEMPTS):
        port, controller_port = free_ports(2, preferred if attempt == 0 else ())
        node = Node(folder, jars, java, cluster_id, port, controller_port)
        node.prepare()
        process = node.launch()
        try:
            node.wait_until_ready(process)
            return _Use(folder, lock, node.bootstrap_servers, process)
        except EmbeddedBrokerError:
            # Somebody may have taken the port between our look and the broker's.
            if attempt + 1 == PORT_ATTEMPTS or "port is taken" not in node.reason():
                raise
        finally:
            if process.poll() is not None:
                process.wait()
    raise AssertionError("unreachable")


def _release(use: _Use) -> bool:
    """Whether the broker goes on, for others."""
    _uses.pop(use.folder, None)
    use.lock.close()
    state_file, users_lock = use.folder / "broker.json", use.folder / "users.lock"
    deadline = time.monotonic() + STOP_SECONDS
    shared = False
    while _locked(state_file) and time.monotonic() < deadline:
        before, shared = shared, _locked(users_lock) and not _locked(users_lock, fcntl.LOCK_SH)
        # Seen twice: the supervisor, which holds the lock alone while it stops the broker, may end between two looks at it.
        if before and shared:
            return True
        time.sleep(0.05)
    if use.process:
        use.process.wait(STOP_SECONDS)
    return False


def _locked(path: Path, mode: int = fcntl.LOCK_EX) -> bool:
    """Whether somebody else's lock on the file excludes ours."""
    try:
        with open(path) as f:
            fcntl.flock(f, mode | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except BlockingIOError:
        return True
    return False
