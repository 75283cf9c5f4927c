"""The embedded broker: a real Apache Kafka that runs while a process of the project uses it.

`ensure_running` starts it or finds it, from any number of threads and processes. The broker stops when the last of them has
ended, even if it was killed; no process waits for that. Its topics stay in `<project>/.upsert_kafka/broker`. Leaves to `node`
how a server is configured and started.

Liveness is tracked with flock, not with pid files, so a killed process leaves no stale state:

    users.lock       shared, by every process that uses the broker; the supervisor stops the broker when it gets it exclusively
    supervisor.lock  exclusive, by the supervisor
    broker.json      exclusive, by supervisor and broker: locked means running; the content is the address
    start.lock       exclusive, by the process that looks for a running broker and starts one if there is none
"""

from __future__ import annotations

import errno
import fcntl
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.upsert_kafka.embedded.node import (
    PORT_TAKEN,
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
    """This process's use of one project's broker."""

    folder: Path
    lock: IO[str]
    bootstrap_servers: str
    process: subprocess.Popen[bytes] | None
    """The supervisor, if this process started it: a child process that must be waited for."""


_uses: dict[Path, _Use] = {}
_mutex = threading.RLock()

share_lock: Callable[[int], None] | None = None
"""Gets the descriptor of the users' lock. The resident dbt keeps a copy, so that the broker runs until the next command."""


def broker_folder(project_dir: Path) -> Path:
    """The folder with a project's broker: data, configuration, log and locks."""
    return Path(project_dir).resolve() / ".upsert_kafka" / "broker"


def ensure_running(project_dir: Path) -> str:
    """Start the project's broker if it is not running; it runs until `stop` or the end of the process.

    Returns:
        Its bootstrap servers.

    Raises:
        UpsertKafkaError: Java or the jars are missing, or the broker did not start.
    """
    folder = broker_folder(project_dir)
    with _mutex:
        use = _uses.get(folder)
        if use and _locked(folder / "broker.json"):
            return use.bootstrap_servers
        if use:
            _logger.warning(f"The embedded Kafka broker of {folder} ended unexpectedly; it is started again")
            _release(use)
        try:
            _uses[folder] = _share(folder)
        except OSError as e:
            reason = "no space left on the device" if e.errno == errno.ENOSPC else e
            raise EmbeddedBrokerError(f"The embedded Kafka broker can't use {folder}: {reason}.") from e
        if share_lock is not None:
            share_lock(_uses[folder].lock.fileno())
        return _uses[folder].bootstrap_servers


def is_running(project_dir: Path) -> bool:
    """Whether the project's broker is running, whichever process started it."""
    return _locked(broker_folder(project_dir) / "broker.json")


def stop(project_dir: Path | None = None) -> bool:
    """End this process's use of a project's broker (of all projects if None), and wait until it stopped if no process uses it.

    Returns:
        Whether a broker is still running because another process uses it.
    """
    with _mutex:
        uses = [use for folder, use in _uses.items() if project_dir is None or folder == broker_folder(project_dir)]
        still_running = [_release(use) for use in uses]
    return any(still_running)


def _share(folder: Path) -> _Use:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.parent.chmod(0o700)
    (folder.parent / ".gitignore").write_text("*\n")
    # Locked until `_release` or the end of this process. Waits while the supervisor is stopping the broker.
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
    """The address of the running broker; None if there is none. A broker that does not answer is killed."""
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
        # The file is locked, so the pid is still the broker's. Without a supervisor nothing would ever stop it.
        end(int(state["broker"]))
    else:
        # The supervisor stops the broker when the file is deleted.
        state_file.unlink(missing_ok=True)
    deadline = time.monotonic() + STOP_SECONDS
    while _locked(state_file):
        if time.monotonic() > deadline:
            raise EmbeddedBrokerError(f"A Kafka broker that uses {folder} neither answers nor ends. Stop its process.")
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
            # Another program may have taken the port after `free_ports`.
            if attempt + 1 == PORT_ATTEMPTS or node.reason() != PORT_TAKEN:
                raise
        finally:
            if process.poll() is not None:
                process.wait()
    raise AssertionError("unreachable")


def _release(use: _Use) -> bool:
    """End a use of the broker; returns whether the broker is still running for another process."""
    _uses.pop(use.folder, None)
    use.lock.close()
    state_file, users_lock = use.folder / "broker.json", use.folder / "users.lock"
    deadline = time.monotonic() + STOP_SECONDS
    shared = False
    while _locked(state_file) and time.monotonic() < deadline:
        before, shared = shared, _locked(users_lock) and not _locked(users_lock, fcntl.LOCK_SH)
        # Checked twice: the supervisor locks the file exclusively while it stops the broker, and may end between the two calls.
        if before and shared:
            return True
        time.sleep(0.05)
    if use.process:
        use.process.wait(STOP_SECONDS)
    return False


def _locked(path: Path, mode: int = fcntl.LOCK_EX) -> bool:
    """Whether a lock of another process or descriptor conflicts with this mode."""
    try:
        with open(path) as f:
            fcntl.flock(f, mode | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except BlockingIOError:
        return True
    return False
