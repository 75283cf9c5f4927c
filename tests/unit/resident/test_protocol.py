"""Messages with file descriptors."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka.resident import protocol


def test_message_and_files_arrive(tmp_path: Path) -> None:
    here, there = socket.socketpair()
    # Larger than the buffer of a socket would need a reader at the same time; bytes that are no UTF-8 are allowed.
    message = {"environment": {"LONG": "x" * 50_000, "BYTES": os.fsdecode(b"\xff")}}
    with here, there, open(tmp_path / "file", "w") as file:
        protocol.send(here, message, [file.fileno()])
        received, [number] = protocol.receive(there, max_files=1)
        os.write(number, b"written")
        os.close(number)
    assert received == message
    assert (tmp_path / "file").read_text() == "written"


def test_message_in_parts_is_complete_with_the_last(tmp_path: Path) -> None:
    here, there = socket.socketpair()
    with here, there, open(tmp_path / "file", "w") as file:
        here.settimeout(0)
        protocol.send(here, {"a": "b"}, [file.fileno()])
        content = there.recv(100)
        incoming = protocol.Incoming(there, max_files=1)
        socket.send_fds(here, [content[:2]], [file.fileno()])
        assert incoming.read() is None
        here.sendall(content[2:9])
        assert incoming.read() is None and incoming.read() is None
        here.sendall(content[9:] + content)
        assert incoming.read() == {"a": "b"}
        # The next message is not touched.
        assert protocol.receive(there)[0] == {"a": "b"}
        assert len(incoming.files) == 1
        incoming.close_files()
        assert incoming.files == []


def test_closed_connection_is_an_end() -> None:
    here, there = socket.socketpair()
    here.close()
    with there, pytest.raises(EOFError):
        protocol.receive(there)


def test_user_of_the_other_end_is_known() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert protocol.peer_user(here) == os.getuid()
