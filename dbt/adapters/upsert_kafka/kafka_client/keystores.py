"""Reads certificates and keys in the formats of Java's clients (PEM, PKCS12, JKS) as PEM text.

A small Java process opens the keystores, so every type that Java supports works and nothing has to be installed. Passwords are
sent through its authenticated socket, not in its command line or environment.
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
from dbt.adapters.upsert_kafka.java import find_java, pyspark_jar

PEM = "PEM"
# Py4J calls methods of classes in packages that Java does not export.
JAVA_OPTIONS = ["-Xmx64m", "-XX:TieredStopAtLevel=1"]
JAVA_OPTIONS += [f"--add-opens=java.base/sun.security.{name}=ALL-UNNAMED" for name in ("x509", "rsa", "ec", "pkcs", "provider")]
# Py4J's debug log would contain the passwords that are sent to Java.
logging.getLogger("py4j").setLevel(logging.WARNING)


@dataclass(frozen=True)
class Store:
    """The contents of a keystore as PEM."""

    trusted: str = ""
    """The trusted certificates."""
    identity: str = field(default="", repr=False)
    """The first key, unencrypted, and its certificate chain."""


def text(option: str, path: str) -> str:
    """The text of a PEM file that a property names."""
    try:
        found = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = f"can't be read ({error.strerror})" if isinstance(error, OSError) else f"is not a {PEM} file"
        raise OptionsError(f"kafka: {option} is '{path}', which {reason}") from None
    if "-----BEGIN " not in found:
        raise OptionsError(f"kafka: {option} is '{path}', which is not a {PEM} file. Set its type to JKS or PKCS12 if it is one.")
    return found


@cache
def read(option: str, path: str, kind: str, password: str | None, key_password: str | None = None) -> Store:
    """The contents of a Java keystore.

    Args:
        option: the property that names the keystore, for messages.
        kind: Java's name of the type, for example PKCS12 or JKS.
        key_password: the key's password, if it differs from the keystore's.
    """
    if not Path(path).is_file():
        raise OptionsError(f"kafka: {option} is '{path}', which does not exist")
    if Path(path).read_bytes()[:64].lstrip().startswith(b"-----BEGIN "):
        raise OptionsError(f"kafka: {option} is '{path}', which is a PEM file: set {option.replace('location', 'type')} to PEM")
    gateway = JavaGateway.launch_gateway(
        jarpath=str(pyspark_jar("py4j")), java_path=str(find_java()), die_on_exit=True, enable_auth=True, javaopts=JAVA_OPTIONS
    )
    try:
        return _read(gateway, path, kind, password, key_password or password)
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage() or error.java_exception.getClass().getSimpleName())
        raise OptionsError(
            f"kafka: {option} is '{path}', which Java can't open as {kind} ({reason.splitlines()[0]}). "
            "Check its type and its password."
        ) from None
    finally:
        gateway.shutdown()
        # The process ends when its standard input is closed.
        gateway.java_process.communicate()


def _read(gateway: JavaGateway, path: str, kind: str, password: str | None, key_password: str | None) -> Store:
    jvm = gateway.jvm

    def char_array(secret: str | None) -> Any:
        if secret is None:
            return None
        array = gateway.new_array(jvm.char, len(secret))
        for i, character in enumerate(secret):
            array[i] = character
        return array

    store = jvm.java.security.KeyStore.getInstance(kind)
    stream = jvm.java.io.FileInputStream(path)
    try:
        store.load(stream, char_array(password))
    finally:
        stream.close()
    trusted, identity = "", ""
    aliases = store.aliases()
    while aliases.hasMoreElements():
        alias = aliases.nextElement()
        if store.isCertificateEntry(alias):
            trusted += _certificate(store.getCertificate(alias))
        elif store.isKeyEntry(alias) and not identity:
            key = base64.encodebytes(store.getKey(alias, char_array(key_password)).getEncoded()).decode()
            chain = "".join(_certificate(certificate) for certificate in store.getCertificateChain(alias))
            identity = f"-----BEGIN PRIVATE KEY-----\n{key}-----END PRIVATE KEY-----\n{chain}"
    return Store(trusted, identity)


def _certificate(certificate: Any) -> str:
    return ssl.DER_cert_to_PEM_cert(certificate.getEncoded())
