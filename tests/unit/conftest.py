"""Unit tests start no JVM, no broker and no Spark, and reach no network: `make check` runs them in seconds.

What needs a JVM belongs into tests/spark, what needs a broker into tests/functional.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
from typing import Any, NoReturn

import pytest

JVM_PROGRAMS = {"java", "spark-submit", "spark-class", "pyspark"}


@pytest.fixture(autouse=True)
def no_jvm_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that starts a JVM or connects to anything but loopback."""
    start, connect = subprocess.Popen.__init__, socket.socket.connect

    def start_no_jvm(self: subprocess.Popen[Any], args: Any, *more: Any, **options: Any) -> None:
        program = os.fspath(args if isinstance(args, str | os.PathLike) else args[0])
        assert os.path.basename(program) not in JVM_PROGRAMS, f"a unit test started a JVM: {args}. Move it to tests/spark."
        start(self, args, *more, **options)

    def connect_to_loopback(self: socket.socket, address: Any) -> None:
        assert self.family == socket.AF_UNIX or _is_loopback(address[0]), f"a unit test connected to {address}"
        connect(self, address)

    monkeypatch.setattr(subprocess.Popen, "__init__", start_no_jvm)
    monkeypatch.setattr(socket.socket, "connect", connect_to_loopback)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _refuse(fixture: str) -> NoReturn:
    pytest.fail(
        f"a unit test uses the fixture {fixture!r}. Move it to tests/spark (needs a JVM) or tests/functional (needs a broker)."
    )


@pytest.fixture(scope="session")
def spark() -> None:
    _refuse("spark")


@pytest.fixture(scope="session")
def broker() -> None:
    _refuse("broker")


@pytest.fixture(scope="session")
def registry() -> None:
    _refuse("registry")
