"""`upsert-kafka dbt …`: hands a dbt command to the project's resident process, and starts that process on first use.

Promises that the command behaves as plain dbt does: the child of the resident has this process's terminal, environment and
working directory; signals are passed on, and this process ends as the child ends. Where that can't be done, one line says so, and
plain dbt runs instead. Standard library only, and few of its modules: all of this takes less than 0.1 s.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from typing import NoReturn

from dbt.adapters.upsert_kafka.resident import protocol

PROGRAM = "upsert-kafka dbt"
STOP, STATUS = "--stop", "--status"
PLATFORMS = ("linux", "darwin")
FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
ATTEMPTS = 5
STOP_SECONDS = 60.0
NOT_RUNNING = "no resident dbt runs for this project."
UNEXPECTED_END = 2
"""dbt's exit code for errors that are not those of models."""


# Not with -m: Python models must not find the resident as their __main__.
RESIDENT = "import sys; from dbt.adapters.upsert_kafka.resident.process import main; main(sys.argv[1], int(sys.argv[2]))"


class CannotServeError(Exception):
    """Why there is no resident for this command."""


def main(arguments: list[str]) -> int:
    """Run a dbt command and return its exit code."""
    try:
        if sys.platform not in PLATFORMS:
            raise CannotServeError(f"there is no resident dbt on {sys.platform}")
        project = find_project(arguments)
        if project is None:
            raise CannotServeError("there is no dbt_project.yml here, so there is no resident dbt")
        folder = os.path.join(project, ".upsert_kafka", protocol.FOLDER)
        if STOP in arguments[:1]:
            return _stop(folder)
        if STATUS in arguments[:1]:
            return _status(folder)
        return _run(folder, arguments)
    except CannotServeError as error:
        if arguments[:1] in ([STOP], [STATUS]):
            _say(f"{error}.")
            return 1
        _say(f"{error}. Plain dbt is used.")
        _plain_dbt(arguments)
    except KeyboardInterrupt:
        return _end_by(signal.SIGINT)


def find_project(arguments: list[str]) -> str | None:
    """The folder of the project that dbt would use: --project-dir, DBT_PROJECT_DIR, or the current folder and its parents."""
    given = os.environ.get("DBT_ENGINE_PROJECT_DIR") or os.environ.get("DBT_PROJECT_DIR")
    for word, following in zip(arguments, [*arguments[1:], None], strict=True):
        if word == "--project-dir":
            given = following
        elif word.startswith("--project-dir="):
            given = word.partition("=")[2]
    folder = os.path.abspath(given or os.curdir)
    while not os.path.isfile(os.path.join(folder, "dbt_project.yml")):
        if given or folder == os.path.dirname(folder):
            return None
        folder = os.path.dirname(folder)
    return os.path.realpath(folder)


def _run(folder: str, arguments: list[str]) -> int:
    request = {
        "operation": "run",
        "version": protocol.VERSION,
        "python": [sys.executable, sys.version],
        "arguments": arguments,
        "cwd": os.getcwd(),
        "environment": dict(os.environ),
        "umask": _umask(),
    }
    files = _standard_files()
    for _ in range(ATTEMPTS):
        connection = _connect(folder) or _start(folder)
        if connection is None:
            continue
        with connection:
            try:
                protocol.send(connection, request, files)
                answer, _ = protocol.receive(connection)
            except (EOFError, OSError):
                # The resident was just ending.
                continue
            if "renew" in answer:
                _say(f"{answer['renew']}: the resident dbt is started again.")
                continue
            if "refused" in answer:
                raise CannotServeError(str(answer["refused"]))
            return _wait(connection, folder)
    raise CannotServeError("the resident dbt does not answer")


def _wait(connection: socket.socket, folder: str) -> int:
    """Pass signals on until the command has ended; returns its exit code."""

    def forward(number: int, _: object) -> None:
        try:
            protocol.send(connection, {"signal": number})
        except OSError:
            # The command has ended, or the resident: `receive` below reports which.
            return

    def suspend(number: int, frame: object) -> None:
        forward(signal.SIGSTOP, frame)
        os.kill(os.getpid(), signal.SIGSTOP)

    for number in (signal.Signals[name] for name in FORWARDED):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, forward)
    signal.signal(signal.SIGTSTP, suspend)
    signal.signal(signal.SIGCONT, forward)
    try:
        answer, _ = protocol.receive(connection)
    except (EOFError, OSError):
        log = os.path.join(folder, protocol.LOG)
        _say(f"the resident dbt was killed, and this command with it. Run it again. (Log: {log})")
        return UNEXPECTED_END
    if "signal" in answer:
        return _end_by(int(answer["signal"]))
    return int(answer["exit"])


def _connect(folder: str) -> socket.socket | None:
    """A connection to the resident; None if it does not run."""
    if not os.path.isdir(folder):
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    here = os.open(os.curdir, os.O_RDONLY)
    try:
        # The whole path may be longer than an address can be.
        os.chdir(folder)
        connection.connect(protocol.SOCKET)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        raise CannotServeError(f"the resident dbt can't be reached ({error})") from error
    finally:
        os.fchdir(here)
        os.close(here)
    if protocol.peer_user(connection) != os.getuid():
        connection.close()
        raise CannotServeError(f"the resident dbt in {folder} belongs to another user")
    return connection


def _start(folder: str) -> socket.socket | None:
    """Start the resident, or wait until another client has started it; returns a connection."""
    import fcntl
    import subprocess

    try:
        for each in (os.path.dirname(folder), folder):
            os.makedirs(each, mode=0o700, exist_ok=True)
        os.chmod(folder, 0o700)
        with open(os.path.join(os.path.dirname(folder), ".gitignore"), "w") as ignore:
            ignore.write("*\n")
        lock = open(os.path.join(folder, protocol.LOCK), "a")  # noqa: SIM115
    except OSError as error:
        raise CannotServeError(f"the resident dbt can't use {folder} ({error.strerror})") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (connection := _connect(folder)) is not None:
            return connection
        _say("starting a resident dbt for this project. Later commands start at once; `upsert-kafka dbt --stop` ends it.")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        with open(os.open(os.path.join(folder, protocol.LOG), flags, 0o600), "wb") as log:
            process = subprocess.Popen(
                # It has the lock too: this process may end before the resident can be reached.
                [sys.executable, "-P", "-c", RESIDENT, folder, str(lock.fileno())], pass_fds=[lock.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True, cwd=folder,
            )  # fmt: skip
        assert process.stdout is not None
        with process.stdout as answer:
            if answer.readline() != b"ready\n":
                raise CannotServeError(f"the resident dbt did not start (log: {os.path.join(folder, protocol.LOG)})")
        return _connect(folder)


def _stop(folder: str) -> int:
    connection = _connect(folder)
    if connection is None:
        _say(NOT_RUNNING)
        return 0
    with connection:
        answer = _ask(connection, "stop")
        if answer is None:
            _say(NOT_RUNNING)
            return 0
        running = int(answer["running"])
        if running:
            commands = "1 command is" if running == 1 else f"{running} commands are"
            _say(f"{commands} still running. The resident dbt ends after that; new commands start another one.")
            return 0
        connection.settimeout(STOP_SECONDS)
        try:
            protocol.receive(connection)
        except (EOFError, ConnectionError):
            _say("stopped.")
            return 0
        except TimeoutError:
            _say(f"process {answer['process']} did not end within {STOP_SECONDS:.0f} s.")
    return 1


def _status(folder: str) -> int:
    connection = _connect(folder)
    status = None
    if connection is not None:
        with connection:
            status = _ask(connection, "status")
    if status is None:
        print(NOT_RUNNING.capitalize())
        return 1
    spark = f"process {status['spark']}" if status["spark"] else "not started"
    print(f"Resident dbt: process {status['process']}, since {time.strftime('%H:%M:%S', time.localtime(status['since']))}")
    print(f"Spark:        {spark}")
    print(f"Commands:     {status['commands']} so far, {len(status['running'])} running")
    for command in status["running"]:
        print(f"              dbt {command}")
    print(f"Ends:         {status['idle_minutes']:g} minutes after the last command")
    print(f"Log:          {os.path.join(folder, protocol.LOG)}")
    return 0


def _ask(connection: socket.socket, operation: str) -> protocol.Message | None:
    """The resident's answer; None if it has just ended."""
    try:
        protocol.send(connection, {"operation": operation, "version": protocol.VERSION})
        return protocol.receive(connection)[0]
    except (EOFError, ConnectionError):
        return None


def _plain_dbt(arguments: list[str]) -> NoReturn:
    script = os.path.join(os.path.dirname(sys.executable), "dbt")
    command = [script] if os.access(script, os.X_OK) else [sys.executable, "-P", "-m", "dbt.cli.main"]
    sys.stderr.flush()
    os.execv(command[0], [*command, *arguments])


def _standard_files() -> list[int]:
    """stdin, stdout and stderr; those that the caller has closed are /dev/null."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    return [0, 1, 2]


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _end_by(number: int) -> int:
    """End as a process does that a signal ended, so that a shell sees the same."""
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


def _say(text: str) -> None:
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
