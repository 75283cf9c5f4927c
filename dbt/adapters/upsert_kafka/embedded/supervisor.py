"""The broker's parent process: runs the broker while any process has a shared lock on the users' lock file, then stops it.

The operating system releases the locks of a killed process. Uses the standard library only, because it runs as long as the broker
and must not keep dbt and Spark in memory. `Node.launch` starts it.

    supervisor.py STATE_FILE USERS_LOCK SUPERVISOR_LOCK LOG_FILE STATE_JSON COMMAND…

The starting process has opened and locked the state file. Supervisor and broker inherit it as file descriptor 0.
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
    """Run the broker's command; returns its exit code."""
    terminated: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: terminated.append(number))
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    inode = os.fstat(0).st_ino
    with open(log_file, "ab") as log, open(users_lock, "rb") as users, open(supervisor_lock, "ab") as supervising:
        fcntl.flock(supervising, fcntl.LOCK_EX)
        broker = subprocess.Popen(command, stdin=0, stdout=log, stderr=log)
        try:
            _write(state_file, {**json.loads(state), "supervisor": os.getpid(), "broker": broker.pid})
            while broker.poll() is None and not terminated and _inode(state_file) == inode and not _is_unused(users):
                time.sleep(POLL_SECONDS)
        finally:
            # Also after an error, for example a full disk: a broker must not outlive its supervisor.
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
    """Overwrite the file in place, because the lock belongs to its inode."""
    with open(path, "r+") as f:
        f.write(json.dumps(state))
        f.truncate()


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _is_unused(users: object) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[arg-type]
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
