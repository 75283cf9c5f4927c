"""TLS for kafka-python's clients: a client's certificates as text, and the context that is made of them where it is needed.

Runs in Spark's Python workers too, where this package may not be installed: it imports nothing of its neighbours. Leaves to
`keystores` how certificates are read and to `kafka_python` what the properties mean.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from dataclasses import dataclass, field
from functools import cache
from typing import Any

VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


@dataclass(frozen=True)
class Tls:
    """Stands where kafka-python takes an `ssl.SSLContext`, and can be sent to Spark's workers, as a context can't."""

    authorities: str | None = None
    """PEM of who is trusted; None: whom the machine trusts."""
    identity: str | None = field(default=None, repr=False)
    """PEM of the client's key and its certificates, for mutual TLS."""
    password: str | None = field(default=None, repr=False)
    """Of the client's key, if that is encrypted."""
    checks_host: bool = True
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: str | None = None
    """In OpenSSL's spelling; None: OpenSSL's choice."""

    def wrap_socket(self, *arguments: Any, **keywords: Any) -> ssl.SSLSocket:
        return context(self).wrap_socket(*arguments, **keywords)


@cache
def context(tls: Tls) -> ssl.SSLContext:
    """What OpenSSL takes.

    Raises:
        ssl.SSLError: a certificate, a key or its password is not what it should be.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    allowed = [VERSIONS[name] for name in tls.protocols]
    made.minimum_version, made.maximum_version = min(allowed), max(allowed)
    made.check_hostname = tls.checks_host
    if tls.ciphers:
        made.set_ciphers(tls.ciphers)
    if tls.authorities:
        made.load_verify_locations(cadata=tls.authorities)
    else:
        made.load_default_certs()
    if tls.identity:
        _load_identity(made, tls.identity, tls.password)
    return made


def _load_identity(made: ssl.SSLContext, identity: str, password: str | None) -> None:
    """OpenSSL takes a key from files only: one in memory where the system has such, else one that only its owner can read."""
    # A password that is not there must not become a question at the terminal.
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("identity")
        try:
            os.write(descriptor, identity.encode())
            made.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password or "")
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(identity)
        file.flush()
        made.load_cert_chain(file.name, password=password or "")
