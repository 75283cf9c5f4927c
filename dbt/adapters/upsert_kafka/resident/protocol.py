"""Messages between client, resident and children: JSON with a length, and file descriptors. Standard library only.

Leaves to its users what messages mean.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from collections.abc import Sequence
from typing import Any

VERSION = 1
"""Of the messages. A resident of another version is replaced."""
FOLDER = "resident"
"""In the project's folder `.upsert_kafka`."""
SOCKET, LOCK, LOG = "socket", "start.lock", "log"
SECONDS = 30.0
"""For which either side waits for the rest of a message."""

_LENGTH = struct.Struct(">I")
_LOCAL_PEERCRED = 1
"""macOS: not in Python's module socket."""

Message = dict[str, Any]


def send(to: socket.socket, message: Message, files: Sequence[int] = ()) -> None:
    """Send a message. The receiver gets duplicates of the file descriptors."""
    content = json.dumps(message).encode()
    content = _LENGTH.pack(len(content)) + content
    # One call: a process that is suspended between two would leave half a message.
    sent = socket.send_fds(to, [content], files)
    if sent < len(content):
        to.sendall(content[sent:])


def receive(sender: socket.socket, max_files: int = 0) -> tuple[Message, list[int]]:
    """Wait for a message.

    Raises:
        EOFError: the other side has closed the connection.
    """
    incoming = Incoming(sender, max_files)
    while (message := incoming.read()) is None:
        continue
    return message, incoming.files


class Incoming:
    """A message that is arriving, in any number of parts."""

    def __init__(self, sender: socket.socket, max_files: int = 0) -> None:
        self.files: list[int] = []
        self._sender, self._max_files = sender, max_files
        self._content = b""

    def read(self) -> Message | None:
        """Take the next part, for which it waits; returns the message when it is complete.

        Raises:
            EOFError: the other side has closed the connection.
        """
        part, files, _, _ = socket.recv_fds(self._sender, min(65536, self._missing), self._max_files)
        self.files += files
        if not part:
            raise EOFError
        self._content += part
        message: Message | None = None if self._missing else json.loads(self._content[_LENGTH.size :])
        return message

    def close_files(self) -> None:
        while self.files:
            os.close(self.files.pop())

    @property
    def _missing(self) -> int:
        """How many bytes are missing, as far as is known."""
        if len(self._content) < _LENGTH.size:
            return _LENGTH.size - len(self._content)
        return int(_LENGTH.unpack(self._content[: _LENGTH.size])[0]) + _LENGTH.size - len(self._content)


def peer_user(connection: socket.socket) -> int:
    """The user id of the process at the other end, from the kernel."""
    if sys.platform == "darwin":
        credentials = connection.getsockopt(0, _LOCAL_PEERCRED, 8)
        return int(struct.unpack("=II", credentials)[1])
    return int(struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])


def is_private(folder: str) -> bool:
    """Whether only this user can open files in the folder."""
    found = os.stat(folder)
    return found.st_uid == os.getuid() and not found.st_mode & 0o077
