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
    socket.send_fds(to, [_LENGTH.pack(len(content))], files)
    to.sendall(content)


def receive(sender: socket.socket, max_files: int = 0) -> tuple[Message, list[int]]:
    """Wait for a message.

    Raises:
        EOFError: the other side has closed the connection.
    """
    header, files = b"", list[int]()
    while len(header) < _LENGTH.size:
        part, more, _, _ = socket.recv_fds(sender, _LENGTH.size - len(header), max_files)
        if not part:
            raise EOFError
        header, files = header + part, files + list(more)
    length, content = _LENGTH.unpack(header)[0], b""
    while len(content) < length:
        part = sender.recv(min(65536, length - len(content)))
        if not part:
            raise EOFError
        content += part
    return json.loads(content), files


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
