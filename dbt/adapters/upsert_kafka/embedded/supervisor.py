"""The process between dbt and its broker: runs the broker as long as anybody holds the users' lock, then stops it.

Locks are the kernel's, so a user that was killed counts as gone and nothing can go stale. A script of the standard library
alone: it lives as long as the broker and must not carry dbt and Spark in its memory. Run by `node.launch`.

    supervisor.py STATE_FILE USERS_LOCK SUPERVISOR_LOCK LOG_FILE STATE_JSON COMMAND…

The state file is open and locked by the starter and inherited as file descriptor 0; the broker inherits it too.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time

POLL_SECONDS = 0.1
STOP_SECONDS = 20


def main(state_file: str, users_lock: str, supervisor_lock: str, log_file: str, state: str, *command: str) -> int:
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    mine = os.fstat(0).st_ino
    with open(log_file, "ab") as log, open(users_lock, "rb") as users, open(supervisor_lock, "ab") as me:
        fcntl.flock(me, fcntl.LOCK_EX)
        broker = subprocess.Popen(command, stdin=0, stdout=log, stderr=log)
        try:
            _write(state_file, {**json.loads(state), "supervisor": os.getpid(), "broker": broker.pid})
            while broker.poll() is None and not asked and _inode(state_file) == mine and not _unused(users):
                time.sleep(POLL_SECONDS)
        finally:
            # Whatever happened, for example a full disk: no broker without its supervisor.
            _stop(broker)
        return broker.returncode


def _stop(broker: subprocess.Popen[bytes]) -> None:
    broker.terminate()
    try:
        broker.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        broker.kill()
        broker.wait()


def _write(path: str, state: dict[str, object]) -> None:
    """In place: the file's inode carries the lock."""
    with open(path, "r+") as f:
        f.write(json.dumps(state))
        f.truncate()


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _unused(users: object) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[arg-type]
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
