"""Certificates for tests of TLS: an authority and certificates that it signed, in the formats of Kafka's clients and brokers."""

from __future__ import annotations

import base64
import datetime as dt
import json
import subprocess
import time
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from dbt.adapters.upsert_kafka.embedded.node import LOOPBACK
from dbt.adapters.upsert_kafka.java import find_java

PASSWORD = "p4ss-of-the-stores"


@dataclass(frozen=True)
class Certificates:
    """An authority and certificates that it signed, in a folder: `<name>.pem` (key and certificate), `.p12` and `.jks`."""

    folder: Path

    def authority(self, stores: bool = True) -> None:
        """Make the authority: `ca.pem`, and with `stores` the Java truststores `ca.p12` and `ca.jks`."""
        key, name = _new_key(), _name("Test authority")
        signed = _certificate(name, key, name).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self["ca.key"].write_bytes(_pem(key))
        self["ca.pem"].write_bytes(signed.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
        for kind, store in (("PKCS12", "ca.p12"), ("JKS", "ca.jks")) if stores else ():
            target = ["-keystore", store, "-storetype", kind, "-storepass", PASSWORD]
            self._keytool("-importcert", "-noprompt", "-alias", "ca", "-file", "ca.pem", *target)

    def signed(self, name: str, stores: bool = False) -> None:
        """Make a key and a certificate for loopback with this common name."""
        authority = x509.load_pem_x509_certificate(self["ca.pem"].read_bytes())
        key = _new_key()
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(LOOPBACK)), x509.DNSName("localhost")])
        request = _certificate(_name(name), key, authority.subject).add_extension(names, critical=False)
        certificate = request.sign(self._authority_key(), hashes.SHA256())
        self[f"{name}.key"].write_bytes(_pem(key))
        self[f"{name}.crt"].write_bytes(certificate.public_bytes(Encoding.PEM))
        self[f"{name}.pem"].write_bytes(_pem(key) + certificate.public_bytes(Encoding.PEM))
        if stores:
            encryption = BestAvailableEncryption(PASSWORD.encode())
            store = pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, None, encryption)
            self[f"{name}.p12"].write_bytes(store)
            source = ["-srckeystore", f"{name}.p12", "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD]
            target = ["-destkeystore", f"{name}.jks", "-deststoretype", "JKS", "-deststorepass", PASSWORD]
            self._keytool("-importkeystore", "-noprompt", *source, *target)

    def token(self, user: str) -> str:
        """An OAuth token that the authority signed. Writes `jwks.json`, with which a broker verifies it."""
        authority = self._authority_key()
        numbers = authority.public_key().public_numbers()
        modulus = numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")
        key = {"kty": "RSA", "kid": "test", "alg": "RS256", "use": "sig", "n": _base64(modulus), "e": "AQAB"}
        self["jwks.json"].write_text(json.dumps({"keys": [key]}))
        now = int(time.time())
        claims = {"sub": user, "iat": now, "exp": now + 36_000, "scope": "kafka"}
        header = {"alg": "RS256", "kid": "test", "typ": "JWT"}
        signed = ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
        return f"{signed}.{_base64(authority.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def __getitem__(self, name: str) -> Path:
        return self.folder / name

    def _authority_key(self) -> rsa.RSAPrivateKey:
        key = load_pem_private_key(self["ca.key"].read_bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        return key

    def _keytool(self, *arguments: str) -> None:
        command = [str(Path(find_java()).resolve().parent / "keytool"), *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _certificate(subject: x509.Name, key: rsa.RSAPrivateKey, issuer: x509.Name) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(now + dt.timedelta(days=2))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
