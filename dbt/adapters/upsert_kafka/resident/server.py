"""The resident: a process that has dbt, the adapter and pyspark imported, and forks a child for each command of a client.

It runs no dbt itself and has no threads, so each child begins as a new process that has finished its imports. It waits for the
ends of children and clients, passes signals on, and keeps what outlives a command: the JVM (`desk`) and the lock of the embedded
broker. Ends when it is idle, when it is asked to, or when it is outdated (`freshness`), but not before its last child.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import selectors
import signal
import socket
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dbt.adapters.upsert_kafka import credentials, dbt_internals
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.resident import child, protocol
from dbt.adapters.upsert_kafka.resident.desk import Answers, Desk, Jvm
from dbt.adapters.upsert_kafka.resident.freshness import Freshness
from dbt.adapters.upsert_kafka.resident.protocol import Message
from dbt.adapters.upsert_kafka.spark import shared_internals

# What dbt's commands import when they run. Without pandas: pyarrow, which it imports, has a thread.
IMPORTED = (
    "dbt.cli.main",
    "dbt.adapters.upsert_kafka.plugin",
    "agate",
    *(f"dbt.task.{task}" for task in ("build", "clone", "compile", "debug", "list", "retry", "run", "run_operation", "seed")),
    *(f"dbt.task.{task}" for task in ("show", "snapshot", "test", "docs.generate")),
    "dbt.parser.manifest",
    "pyspark.sql.functions",
    "dbt.adapters.upsert_kafka.operations.adapter",
)
DEFAULT_IDLE_MINUTES = 30.0
CHECK_SECONDS = 60.0
"""How often an idle resident looks whether its socket still exists."""
KILL_SECONDS = 60.0
"""After which a command whose client has ended is killed, if Ctrl-C has not ended it."""
JVM_SECONDS = 15.0


@dataclass
class Command:
    """A running child."""

    process: int
    arguments: list[str]
    client: socket.socket | None
    """None when the client has ended."""
    link: socket.socket
    gateway: Message | None = None
    """Port and secret of the child's gateway server in the shared JVM, while it uses that."""
    killed_at: float | None = None
    """When to kill it, because its client has ended."""


@dataclass
class Child:
    """What a new child has to do; returned by `Resident.serve` in the child."""

    request: Message
    files: list[int]
    link: socket.socket


@dataclass
class Resident:
    """The state of the resident process. Its working directory is the folder of its socket."""

    listener: socket.socket
    alive: tuple[int, int]
    """A pipe: children read it, and nobody writes. It ends when this process has ended."""
    wakeup: tuple[int, int]
    """A pipe that gets a byte when a child has ended."""
    began: float = field(default_factory=time.time)
    freshness: Freshness = field(default_factory=Freshness)
    desk: Desk = field(default_factory=Desk)
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    commands: dict[int, Command] = field(default_factory=dict)
    started: int = 0
    idle_since: float = field(default_factory=time.monotonic)
    idle_minutes: float = DEFAULT_IDLE_MINUTES
    broker_lock: int | None = None
    is_ending: bool = False
    waiting: list[socket.socket] = field(default_factory=list)
    """Clients that wait until this process has ended."""
    warming_up: Iterator[None] | None = None
    """Steps to do while no command runs."""

    def serve(self) -> Child | None:
        """Serve until the end; returns None then, and in each child what the child has to do."""
        inode = os.stat(protocol.SOCKET).st_ino
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(self.wakeup[0], selectors.EVENT_READ)
        while not (self.is_ending and not self.commands):
            for key, _ in self.selector.select(self._timeout()):
                found = self._handle(key.fileobj)
                if found is not None:
                    return found
            now = time.monotonic()
            for command in self.commands.values():
                if command.killed_at is not None and now > command.killed_at:
                    os.kill(command.process, signal.SIGKILL)
            is_idle = not self.commands and now - self.idle_since > 60 * self.idle_minutes
            if not self.is_ending and (is_idle or _inode(protocol.SOCKET) != inode):
                self._end()
            if self._may_warm_up and next(self.warming_up or iter(()), self) is self:
                self.warming_up = None
        return None

    def close(self) -> None:
        """End the JVM and the broker."""
        process = self.desk.jvm.process if self.desk.jvm else None
        self.desk.close()
        until = time.monotonic() + JVM_SECONDS
        while process is not None and shared_internals.is_running(process) and time.monotonic() < until:
            time.sleep(0.05)
        if self.broker_lock is not None:
            os.close(self.broker_lock)

    @property
    def _may_warm_up(self) -> bool:
        """Not before the first command has ended: its user is waiting."""
        return self.warming_up is not None and self.started > 0 and not self.commands

    def _timeout(self) -> float:
        if self._may_warm_up:
            return 0.0
        if self.commands:
            return 1.0 if any(command.killed_at for command in self.commands.values()) else CHECK_SECONDS
        return max(0.0, min(CHECK_SECONDS, self.idle_since + 60 * self.idle_minutes - time.monotonic() + 0.01))

    def _end(self) -> None:
        """Accept no more clients."""
        if not self.is_ending:
            self.is_ending = True
            self.selector.unregister(self.listener)
            self.listener.close()

    def _handle(self, source: Any) -> Child | None:
        if source is self.listener:
            return self._accept()
        if source == self.wakeup[0]:
            os.read(self.wakeup[0], 65536)
            self._reap()
            return None
        for command in list(self.commands.values()):
            if source is command.link:
                self._hear(command)
            elif source is command.client:
                self._forward(command)
        return None

    def _accept(self) -> Child | None:
        client, _ = self.listener.accept()
        client.settimeout(protocol.SECONDS)
        files: list[int] = []
        try:
            if protocol.peer_user(client) != os.getuid():
                return None
            request, files = protocol.receive(client, max_files=3)
            answer = self._answer(request)
            if answer is not None:
                protocol.send(client, answer)
                if request["operation"] == "stop":
                    self.waiting.append(client)
                return None
            return self._fork(client, request, files)
        except (EOFError, OSError, ValueError, KeyError) as error:
            _log(f"a client was refused: {error!r}")
            return None
        finally:
            for file in files:
                os.close(file)
            if client not in self.waiting and all(client is not command.client for command in self.commands.values()):
                client.close()

    def _answer(self, request: Message) -> Message | None:
        """The answer to a request; None if a child has to do it."""
        if request["operation"] == "stop":
            self._end()
            return {"running": len(self.commands), "process": os.getpid()}
        if request["operation"] == "status":
            return {
                "process": os.getpid(),
                "since": self.began,
                "spark": self.desk.jvm.process if self.desk.jvm and self.desk.jvm.is_alive else None,
                "commands": self.started,
                "running": [" ".join(command.arguments) for command in self.commands.values()],
                "idle_minutes": self.idle_minutes,
            }
        if problem := self.freshness.problem(request):
            self._end()
            return {"renew": problem}
        return None

    def _fork(self, client: socket.socket, request: Message, files: list[int]) -> Child | None:
        here, there = socket.socketpair()
        process = os.fork()
        if process == 0:
            self._leave()
            here.close()
            client.close()
            # The caller closes those of the resident.
            return Child(request, [os.dup(file) for file in files], there)
        there.close()
        here.settimeout(protocol.SECONDS)
        self.started += 1
        command = Command(process, request["arguments"], client, here)
        self.commands[process] = command
        self.selector.register(client, selectors.EVENT_READ)
        self.selector.register(here, selectors.EVENT_READ)
        try:
            protocol.send(client, {"accepted": process})
        except OSError:
            self._lose_client(command)
        return None

    def _leave(self) -> None:
        """Close the resident's files in a child. Nothing is unregistered: the parent has the same selector."""
        child.reset_signals()
        self.selector.close()
        if not self.is_ending:
            self.listener.close()
        for each in (self.wakeup[0], self.wakeup[1], self.alive[1], self.broker_lock):
            if each is not None:
                os.close(each)
        for command in self.commands.values():
            command.link.close()
            if command.client is not None:
                command.client.close()
        for client in self.waiting:
            client.close()
        self.desk.close()

    def _hear(self, command: Command) -> None:
        """A child asks or reports."""
        try:
            message, files = protocol.receive(command.link, max_files=1)
        except (EOFError, OSError):
            self.selector.unregister(command.link)
            return
        if "attached" in message:
            command.gateway = message["attached"]
        if "idle_minutes" in message:
            self.idle_minutes = float(message["idle_minutes"])
        if "broker" in message:
            if self.broker_lock is not None:
                os.close(self.broker_lock)
            [self.broker_lock] = files
        if "ask" in message:
            self._reply(self.desk.ask(command.process, message["ask"]))
        if "unreachable" in message:
            self._reply(self.desk.unreachable(command.process, message["unreachable"], message["fingerprint"]))
        if "started" in message:
            self._reply(self.desk.started(command.process, Jvm(**message["started"], pipe=files[0])))
        if "left" in message:
            self._reply(self.desk.left(command.process))

    def _reply(self, answers: Answers) -> None:
        for process, answer in answers:
            try:
                protocol.send(self.commands[process].link, answer)
            except OSError as error:
                _log(f"process {process} has ended before it got its answer: {error!r}")

    def _forward(self, command: Command) -> None:
        """A client passes on a signal, or has ended."""
        assert command.client is not None
        try:
            message, _ = protocol.receive(command.client)
        except (EOFError, OSError):
            self._lose_client(command)
            return
        os.kill(command.process, int(message["signal"]))

    def _lose_client(self, command: Command) -> None:
        """A client was killed: its command ends as with Ctrl-C."""
        assert command.client is not None
        self.selector.unregister(command.client)
        command.client.close()
        command.client = None
        command.killed_at = time.monotonic() + KILL_SECONDS
        os.kill(command.process, signal.SIGCONT)
        os.kill(command.process, signal.SIGINT)

    def _reap(self) -> None:
        for command, status in self._ended():
            while command.link in [key.fileobj for key in self.selector.get_map().values()] and _is_readable(command.link):
                self._hear(command)
            if command.gateway is not None:
                # It was killed, or could not detach.
                self._clean_up(command.gateway, command.process)
            del self.commands[command.process]
            self._reply(self.desk.left(command.process))
            for connection in (command.link, command.client):
                if connection is not None and connection.fileno() in self.selector.get_map():
                    self.selector.unregister(connection)
            command.link.close()
            if command.client is not None:
                code = os.waitstatus_to_exitcode(status)
                try:
                    protocol.send(command.client, {"exit": code} if code >= 0 else {"signal": -code})
                except OSError as error:
                    _log(f"the client of process {command.process} has ended: {error!r}")
                command.client.close()
            self.idle_since = time.monotonic()

    def _ended(self) -> Iterator[tuple[Command, int]]:
        for process in list(self.commands):
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                yield self.commands[process], status

    def _clean_up(self, gateway: Message, killed: int) -> None:
        """Wait for a child that cleans up: the next command must not meet the jobs of the killed one."""
        process = os.fork()
        if process == 0:
            code = 1
            try:
                self._leave()
                child.clean_up(gateway, killed)
                code = 0
            finally:
                os._exit(code)
        until = time.monotonic() + child.CLEAN_UP_SECONDS
        while os.waitpid(process, os.WNOHANG)[0] == 0:
            if time.monotonic() > until:
                os.kill(process, signal.SIGKILL)
            time.sleep(0.02)


def main(folder: str) -> None:
    """Serve the project whose resident's folder this is. stdout gets the line `ready`, or ends."""
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
    try:
        os.write(1, b"ready\n")
    except BrokenPipeError:
        _log("the client that has started this process did not wait for it")
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
    # The client that has started this process has the lock, so nobody else is doing the same.
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


def _is_readable(connection: socket.socket) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(0))


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _log(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", file=sys.stderr, flush=True)
