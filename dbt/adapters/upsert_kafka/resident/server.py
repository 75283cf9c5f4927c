"""The resident: a process that has dbt, the adapter and pyspark imported, and forks a child for each command of a client.

It runs no dbt itself and has no threads, so each child begins as a new process that has finished its imports. It waits for the
ends of children and clients, passes signals on, and keeps what outlives a command: the JVM (`desk`) and the lock of the embedded
broker. Ends when it is idle, when it is asked to, or when it is outdated (`freshness`), but not before its last child.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dbt.adapters.upsert_kafka.resident import child, protocol
from dbt.adapters.upsert_kafka.resident.desk import Answers, Desk, Jvm
from dbt.adapters.upsert_kafka.resident.freshness import Freshness
from dbt.adapters.upsert_kafka.resident.protocol import Message
from dbt.adapters.upsert_kafka.spark import shared_internals

DEFAULT_IDLE_MINUTES = 30.0
CHECK_SECONDS = 60.0
"""How often an idle resident looks whether its socket still exists."""
KILL_SECONDS = 60.0
"""After which a command whose client has ended is killed, if Ctrl-C has not ended it."""
CLEAN_UP_SECONDS = 20.0
"""For which the jobs of a command that has ended may go on after they were cancelled."""
JVM_SECONDS = 15.0


@dataclass
class Command:
    """A running child."""

    process: int
    arguments: list[str]
    client: socket.socket | None
    """None when the client has ended."""
    link: socket.socket
    gateways: dict[int, Message] = field(default_factory=dict)
    """What `child.clean_up` needs, by the ports of the child's gateway servers in the shared JVM."""
    status: int | None = None
    """Of the child that has ended."""
    cleaner: int | None = None
    """The process that cleans up after the child. The command ends with it: the next one must not meet jobs of this one."""
    killed_at: float | None = None
    """When to kill the child because its client has ended, or the cleaner."""

    def signal(self, number: int) -> None:
        if self.status is None:
            os.kill(self.process, number)


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
    arriving: dict[socket.socket, protocol.Incoming] = field(default_factory=dict)
    """Clients whose requests are not complete. They may be suspended."""
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
                    os.kill(command.cleaner or command.process, signal.SIGKILL)
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
            self._accept()
            return None
        if source in self.arriving:
            return self._receive(source)
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

    def _accept(self) -> None:
        client, _ = self.listener.accept()
        client.settimeout(protocol.SECONDS)
        if protocol.peer_user(client) != os.getuid():
            client.close()
            return
        self.arriving[client] = protocol.Incoming(client, max_files=3)
        self.selector.register(client, selectors.EVENT_READ)

    def _receive(self, client: socket.socket) -> Child | None:
        """Take a part of a client's request, and serve the client when it is complete."""
        incoming = self.arriving[client]
        try:
            request = incoming.read()
            if request is None:
                return None
        except (EOFError, OSError, ValueError) as error:
            log(f"a client has ended before its request: {error!r}")
            request = None
        self.selector.unregister(client)
        del self.arriving[client]
        if request is None:
            incoming.close_files()
            client.close()
            return None
        return self._serve_client(client, request, incoming)

    def _serve_client(self, client: socket.socket, request: Message, incoming: protocol.Incoming) -> Child | None:
        try:
            answer = self._answer(request)
            if answer is not None:
                protocol.send(client, answer)
                if request["operation"] == "stop":
                    self.waiting.append(client)
                return None
            return self._fork(client, request, incoming.files)
        except (EOFError, OSError, ValueError, KeyError) as error:
            log(f"a client was refused: {error!r}")
            return None
        finally:
            incoming.close_files()
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
        for client in (*self.waiting, *self.arriving):
            client.close()
        for incoming in self.arriving.values():
            incoming.close_files()
        self.desk.close()

    def _hear(self, command: Command) -> None:
        """A child asks or reports."""
        try:
            message, files = protocol.receive(command.link, max_files=1)
        except (EOFError, OSError):
            self.selector.unregister(command.link)
            return
        if "attached" in message:
            command.gateways[message["attached"]["port"]] = message["attached"]
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
                log(f"process {process} has ended before it got its answer: {error!r}")

    def _forward(self, command: Command) -> None:
        """A client passes on a signal, or has ended."""
        assert command.client is not None
        try:
            message, _ = protocol.receive(command.client)
        except (EOFError, OSError):
            self._lose_client(command)
            return
        command.signal(int(message["signal"]))

    def _lose_client(self, command: Command) -> None:
        """A client was killed: its command ends as with Ctrl-C."""
        assert command.client is not None
        self.selector.unregister(command.client)
        command.client.close()
        command.client = None
        if command.status is None:
            command.killed_at = time.monotonic() + KILL_SECONDS
        command.signal(signal.SIGCONT)
        command.signal(signal.SIGINT)

    def _reap(self) -> None:
        for command in list(self.commands.values()):
            found, status = os.waitpid(command.cleaner or command.process, os.WNOHANG)
            if not found:
                continue
            if command.cleaner is None:
                command.status = status
                while command.link in [key.fileobj for key in self.selector.get_map().values()] and _is_readable(command.link):
                    self._hear(command)
                if command.gateways and self.desk.jvm is not None:
                    self._clean_up(command)
                    continue
            elif status:
                log(f"Spark did not end what process {command.process} had started")
                self.desk.distrust(command.process)
            self._finish(command)

    def _clean_up(self, command: Command) -> None:
        process = os.fork()
        if process == 0:
            code = 1
            try:
                self._leave()
                child.clean_up(command.gateways.values(), command.process)
                code = 0
            finally:
                os._exit(code)
        command.cleaner = process
        command.killed_at = time.monotonic() + CLEAN_UP_SECONDS

    def _finish(self, command: Command) -> None:
        """Report the end of a command."""
        assert command.status is not None
        del self.commands[command.process]
        self._reply(self.desk.left(command.process))
        for connection in (command.link, command.client):
            if connection is not None and connection.fileno() in self.selector.get_map():
                self.selector.unregister(connection)
        command.link.close()
        if command.client is not None:
            code = os.waitstatus_to_exitcode(command.status)
            try:
                protocol.send(command.client, {"exit": code} if code >= 0 else {"signal": -code})
            except OSError as error:
                log(f"the client of process {command.process} has ended: {error!r}")
            command.client.close()
        self.idle_since = time.monotonic()


def _is_readable(connection: socket.socket) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(0))


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def log(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", file=sys.stderr, flush=True)
