"""A server that speaks the first requests of a Kafka connection and records how a client logs in. Every login is refused."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Self

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
NO_ERROR, UNSUPPORTED_VERSION, LOGIN_FAILED = 0, 35, 58


class LoginServer:
    """Listens on loopback. `logins` has mechanism and first bytes of each login."""

    def __init__(self) -> None:
        self.logins: list[tuple[str, bytes]] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for opened in [self._socket, *self._open]:
            opened.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        mechanism = ""
        with connection, connection.makefile("rb") as stream:
            while len(prefix := stream.read(4)) == 4:
                request = stream.read(struct.unpack(">i", prefix)[0])
                api, version, number, name_length = struct.unpack_from(">hhih", request)
                body = request[10 + max(0, name_length) :]
                if api == API_VERSIONS:
                    # The lowest versions, which have no tags and no compact types.
                    ranges = [(API_VERSIONS, 0, 0), (SASL_HANDSHAKE, 1, 1), (SASL_AUTHENTICATE, 0, 0)]
                    error = UNSUPPORTED_VERSION if version else NO_ERROR
                    answer = struct.pack(">hi", error, len(ranges)) + b"".join(struct.pack(">hhh", *r) for r in ranges)
                elif api == SASL_HANDSHAKE:
                    mechanism = body[2:].decode()
                    answer = struct.pack(">hi", NO_ERROR, 1) + _text(mechanism)
                elif api != SASL_AUTHENTICATE:
                    # As a broker, which answers nothing else before the login.
                    return
                else:
                    self.logins.append((mechanism, body[4:]))
                    answer = struct.pack(">h", LOGIN_FAILED) + _text("refused by the test") + struct.pack(">i", 0)
                connection.sendall(struct.pack(">ii", 4 + len(answer), number) + answer)


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()
