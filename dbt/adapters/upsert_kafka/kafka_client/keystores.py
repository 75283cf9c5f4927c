"""Certificates and keys in the forms that Java's clients take (PEM, PKCS12, JKS), as PEM text.

Java itself opens its keystores, in a small process of its own: every type that it knows works, with nothing to install. Passwords
reach that process through its authenticated socket, not through its command line or environment.
"""

from __future__ import annotations

import base64
import logging
import ssl
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.java import find_java

PEM = "PEM"
# Java's keys and certificates are of classes that it does not show to others unless told.
JAVA_OPTIONS = ["-Xmx64m", "-XX:TieredStopAtLevel=1"]
JAVA_OPTIONS += [f"--add-opens=java.base/sun.security.{name}=ALL-UNNAMED" for name in ("x509", "rsa", "ec", "pkcs", "provider")]
# Its debug log would hold what is sent to Java.
logging.getLogger("py4j").setLevel(logging.WARNING)


@dataclass(frozen=True)
class Store:
    """What a keystore holds, as PEM."""

    trusted: str = ""
    """Certificates of others."""
    identity: str = field(default="", repr=False)
    """The first key, unencrypted, and its certificates."""


def text(option: str, path: str) -> str:
    """A PEM file."""
    try:
        found = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = f"can't be read ({error.strerror})" if isinstance(error, OSError) else f"is no {PEM} file"
        raise OptionsError(f"kafka: {option} is '{path}', which {reason}") from None
    if "-----BEGIN " not in found:
        raise OptionsError(f"kafka: {option} is '{path}', which is no {PEM} file; set its type to JKS or PKCS12 if it is one")
    return found


@cache
def read(option: str, path: str, kind: str, password: str | None, key_password: str | None = None) -> Store:
    """A keystore of Java's.

    Args:
        option: the property that names it, for messages.
        kind: as Java calls it, for example PKCS12 or JKS.
        key_password: of the key in it, if that has another.
    """
    if not Path(path).is_file():
        raise OptionsError(f"kafka: {option} is '{path}', and there is no such file")
    if Path(path).read_bytes()[:64].lstrip().startswith(b"-----BEGIN "):
        raise OptionsError(f"kafka: {option} is '{path}', which is a PEM file: set {option.replace('location', 'type')} to PEM")
    [py4j] = sorted((Path(_pyspark()) / "jars").glob("py4j-*.jar"))
    gateway = JavaGateway.launch_gateway(
        jarpath=str(py4j), java_path=str(find_java()), die_on_exit=True, enable_auth=True, javaopts=JAVA_OPTIONS
    )
    try:
        return _read(gateway, path, kind, password, key_password or password)
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage() or error.java_exception.getClass().getSimpleName())
        raise OptionsError(
            f"kafka: {option} is '{path}', which Java can't open as {kind} ({reason.splitlines()[0]}); "
            "check its type and its password"
        ) from None
    finally:
        gateway.shutdown()
        # It lives as long as its standard input.
        gateway.java_process.communicate()


def _read(gateway: JavaGateway, path: str, kind: str, password: str | None, key_password: str | None) -> Store:
    jvm = gateway.jvm

    def letters(secret: str | None) -> Any:
        if secret is None:
            return None
        array = gateway.new_array(jvm.char, len(secret))
        for i, letter in enumerate(secret):
            array[i] = letter
        return array

    store = jvm.java.security.KeyStore.getInstance(kind)
    stream = jvm.java.io.FileInputStream(path)
    try:
        store.load(stream, letters(password))
    finally:
        stream.close()
    trusted, identity = "", ""
    aliases = store.aliases()
    while aliases.hasMoreElements():
        alias = aliases.nextElement()
        if store.isCertificateEntry(alias):
            trusted += _certificate(store.getCertificate(alias))
        elif store.isKeyEntry(alias) and not identity:
            key = base64.encodebytes(store.getKey(alias, letters(key_password)).getEncoded()).decode()
            chain = "".join(_certificate(certificate) for certificate in store.getCertificateChain(alias))
            identity = f"-----BEGIN PRIVATE KEY-----\n{key}-----END PRIVATE KEY-----\n{chain}"
    return Store(trusted, identity)


def _certificate(certificate: Any) -> str:
    return ssl.DER_cert_to_PEM_cert(certificate.getEncoded())


def _pyspark() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent
