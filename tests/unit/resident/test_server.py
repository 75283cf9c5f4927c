"""The resident serves its clients while one of them, or a command that has ended, needs time."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dbt.adapters.upsert_kafka.resident import child, protocol, server
from dbt.adapters.upsert_kafka.resident.server import Command, Resident

# The resident forks a process that only calls a function of this file.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def resident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Resident]:
    """A resident that serves in a thread. Its working directory is that of its socket."""
    monkeypatch.chdir(tmp_path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(protocol.SOCKET)
    listener.listen()
    made = Resident(listener, os.pipe(), os.pipe())
    thread = threading.Thread(target=made.serve, daemon=True)
    thread.start()
    yield made
    assert ask("stop")["running"] == 0
    thread.join()
    for file in (*made.alive, *made.wakeup):
        os.close(file)


def connect() -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20)
    client.connect(protocol.SOCKET)
    return client


def ask(operation: str) -> dict[str, Any]:
    with connect() as client:
        protocol.send(client, {"operation": operation, "version": protocol.VERSION})
        return protocol.receive(client)[0]


def test_suspended_client_does_not_keep_others_waiting(resident: Resident) -> None:
    with connect() as silent, connect() as suspended:
        # The length of a request and no more.
        suspended.sendall(b"\0\0")
        assert ask("status")["commands"] == 0
        assert silent.fileno() and len(resident.arriving) == 2
    wait_until(lambda: not resident.arriving)


def test_command_ends_when_its_jobs_have_ended_and_others_go_on(resident: Resident, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    cleaned: list[Any] = []
    monkeypatch.setattr(child, "clean_up", lambda *arguments: os.read(reading, 1))
    monkeypatch.setattr(resident.desk, "jvm", jvm_of(os.dup(writing)))
    monkeypatch.setattr(resident.desk, "distrust", cleaned.append)
    client = ended_command(resident)
    os.write(resident.wakeup[1], b"x")
    assert ask("status")["running"] == ["run"]
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        protocol.receive(client)
    client.settimeout(20)
    os.write(writing, b"x")
    wake_until_answered(resident, client, {"exit": 2})
    assert cleaned == []
    resident.desk.close()
    for file in (reading, writing):
        os.close(file)


def test_jvm_that_does_not_end_the_jobs_of_a_command_is_not_used_again(
    resident: Resident, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(child, "clean_up", lambda *arguments: signal.pause())
    monkeypatch.setattr(server, "CLEAN_UP_SECONDS", 0.0)
    monkeypatch.setattr(resident.desk, "jvm", jvm_of(writing))
    client = ended_command(resident)
    wake_until_answered(resident, client, {"exit": 2})
    assert resident.desk.jvm is None
    # The pipe that is the JVM's stdin was closed.
    assert os.read(reading, 1) == b""
    os.close(reading)


def jvm_of(pipe: int) -> Any:
    return server.Jvm(port=1, secret="s", process=os.getpid(), fingerprint={}, pipe=pipe)


def ended_command(resident: Resident) -> socket.socket:
    """A command whose process has ended with code 2, and used Spark; returns the client's end of its connection."""
    process = os.fork()
    if process == 0:
        os._exit(2)
    ours, theirs = socket.socketpair()
    link, other = socket.socketpair()
    other.close()
    gateways = {1: {"port": 1, "secret": "s", "session": None}}
    resident.commands[process] = Command(process, ["run"], theirs, link, gateways)
    return ours


def wake_until_answered(resident: Resident, client: socket.socket, expected: dict[str, int]) -> None:
    """pytest's process gets no signal of the resident."""
    client.settimeout(0.1)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        os.write(resident.wakeup[1], b"x")
        try:
            assert protocol.receive(client)[0] == expected
        except TimeoutError:
            continue
        client.close()
        return
    raise AssertionError("the command did not end")


def wait_until(is_true: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < until, "did not happen in time"
        time.sleep(0.01)
