"""TLS for kafka-python's clients: settings that can be pickled, and the SSL context that is built from them.

Spark workers get this module by value, because this package may not be installed there: it imports none of its neighbours. Leaves
to `keystores` how certificates are read and to `kafka_python` what the properties mean.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from dataclasses import dataclass, field
from typing import Any

VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


@dataclass(frozen=True)
class Tls:
    """Replaces an `ssl.SSLContext` in kafka-python's arguments. Unlike a context it can be pickled and sent to Spark workers."""

    authorities: str | None = None
    """PEM of the trusted certificates; None: the certificates that the operating system trusts."""
    identity: str | None = field(default=None, repr=False)
    """PEM of the client's key and certificate chain, for mutual TLS."""
    password: str | None = field(default=None, repr=False)
    """The password of the client's key, if the key is encrypted."""
    checks_host: bool = True
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: str | None = None
    """OpenSSL's names; None: OpenSSL's default."""

    def wrap_socket(self, *arguments: Any, **keywords: Any) -> ssl.SSLSocket:
        return context(self).wrap_socket(*arguments, **keywords)


def context(tls: Tls) -> ssl.SSLContext:
    """A new SSL context with these settings.

    Not cached: functools.cache would be pickled by reference to this module, which Spark workers may not have.

    Raises:
        ssl.SSLError: a certificate, a key or its password is wrong.
    """
    result = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    allowed = [VERSIONS[name] for name in tls.protocols]
    result.minimum_version, result.maximum_version = min(allowed), max(allowed)
    result.check_hostname = tls.checks_host
    if tls.ciphers:
        result.set_ciphers(tls.ciphers)
    if tls.authorities:
        result.load_verify_locations(cadata=tls.authorities)
    else:
        result.load_default_certs()
    if tls.identity:
        _load_identity(result, tls.identity, tls.password)
    return result


def _load_identity(result: ssl.SSLContext, identity: str, password: str | None) -> None:
    """Load the client's key and certificates, which OpenSSL reads from files only.

    The file is in memory if the operating system supports that (Linux), otherwise a temporary file that only its owner can read.
    """
    # Without a password OpenSSL would ask for one at the terminal.
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("identity")
        try:
            os.write(descriptor, identity.encode())
            result.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password or "")
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(identity)
        file.flush()
        result.load_cert_chain(file.name, password=password or "")
