"""Translates client properties with the names of Java's clients to arguments of kafka-python's clients.

The arguments can be pickled and sent to Spark workers. Leaves to `keystores` how certificates are read, to `tls` and `oauth` how
they are used.
"""

from __future__ import annotations

import importlib.util
import os
import re
import ssl
from collections.abc import Mapping
from typing import Any

from dbt.adapters.upsert_kafka import kafka_properties
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.kafka_client import keystores, tls
from dbt.adapters.upsert_kafka.kafka_client.internals import ADMIN_DEFAULTS, SASL_MECHANISMS
from dbt.adapters.upsert_kafka.kafka_client.oauth import MskTokenProvider, TokenProvider
from dbt.adapters.upsert_kafka.kafka_client.tls import Tls
from dbt.adapters.upsert_kafka.kafka_properties import MSK_IAM

JAAS_ENTRY = re.compile(r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")
# GSSAPI is the default of sasl.mechanism in Java's clients.
KERBEROS, OAUTH = "GSSAPI", "OAUTHBEARER"
# The last three concern logs and retries of Java's client only.
MSK_OPTIONS = {"awsRoleArn", "awsRoleSessionName", "awsProfileName", "awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"}
MSK_HOST = re.compile(r"\.kafka(-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?$")


def arguments(bootstrap_servers: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Arguments for any of kafka-python's clients.

    Raises:
        OptionsError: a property that only Java's clients support, or certificates that can't be read.
    """
    given = kafka_properties.split(properties).admin
    for name, value in given.items():
        if "${" in value:
            raise OptionsError(
                f"properties: {name} refers to a config provider, which only Java's clients support. "
                "Put it into the kafka: block of your profile, for example with env_var()."
            )
    result: dict[str, Any] = {"bootstrap_servers": [server.strip() for server in bootstrap_servers.split(",")]}
    for name, value in given.items():
        argument = name.replace(".", "_")
        if not name.startswith("ssl.") and argument in ADMIN_DEFAULTS:
            result[argument] = int(value) if isinstance(ADMIN_DEFAULTS[argument], int) else value
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if "security.protocol" in given:
        result["security_protocol"] = protocol
    if protocol in ("SSL", "SASL_SSL"):
        result["ssl_context"] = _tls(given)
    if protocol.startswith("SASL"):
        result |= _sasl(given, result["bootstrap_servers"])
    return result


def user(properties: Mapping[str, str]) -> str:
    """The user that the cluster authenticates, as far as the properties name one."""
    entries = jaas_entries(properties)
    name = entries.get("username") or entries.get("clientId") or properties.get("sasl.oauthbearer.client.credentials.client.id")
    if name and properties.get("security.protocol", "").upper().startswith("SASL"):
        return f"user '{name}'"
    return "the user of the client's certificate" if properties.get("security.protocol", "").upper() == "SSL" else "this user"


def jaas_entries(properties: Mapping[str, str]) -> dict[str, str]:
    """The options of the login module in `sasl.jaas.config`."""
    entries = {}
    for match in JAAS_ENTRY.finditer(properties.get("sasl.jaas.config", "")):
        quoted = next((value for value in match.groups()[1:3] if value is not None), None)
        entries[match[1]] = match[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    return entries


def _sasl(given: Mapping[str, str], servers: list[str]) -> dict[str, Any]:
    mechanism = given.get("sasl.mechanism", KERBEROS)
    if mechanism not in SASL_MECHANISMS:
        raise OptionsError(
            f"kafka: sasl.mechanism is '{mechanism}': must be one of {', '.join(sorted(SASL_MECHANISMS))}, in upper case"
        )
    entries = jaas_entries(given)
    if mechanism == MSK_IAM:
        # MSK accepts signed tokens too. kafka-python's own AWS_MSK_IAM knows neither roles nor profiles.
        return {"sasl_mechanism": OAUTH, "sasl_oauth_token_provider": _msk_token_provider(entries, servers)}
    if mechanism == OAUTH:
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": _token_provider(given, entries)}
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM"):
        missing = [name for name in ("username", "password") if not entries.get(name)]
        if missing:
            raise OptionsError(
                f"kafka: sasl.mechanism {mechanism} needs {' and '.join(missing)} in sasl.jaas.config: "
                'org.apache.kafka.common.security.….LoginModule required username="…" password="…";'
            )
        return {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": entries["username"],
            "sasl_plain_password": entries["password"],
        }
    return {"sasl_mechanism": mechanism}


def _msk_token_provider(entries: Mapping[str, str], servers: list[str]) -> MskTokenProvider:
    if importlib.util.find_spec("aws_msk_iam_sasl_signer") is None:
        raise OptionsError(f"kafka: sasl.mechanism {MSK_IAM} needs a package: pip install 'dbt-upsert-kafka[aws]'")
    if unknown := sorted(name for name in entries if name.startswith("aws") and name not in MSK_OPTIONS):
        raise OptionsError(
            f"kafka: sasl.jaas.config has {', '.join(unknown)}, which AWS's library for Python does not support. Remove it: "
            "use awsRoleArn with awsRoleSessionName, awsProfileName, or a profile of AWS that assumes the role."
        )
    named = (match[2] for server in servers if (match := MSK_HOST.search(server.rpartition(":")[0])))
    region = next(named, None) or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise OptionsError(f"kafka: sasl.mechanism {MSK_IAM}: bootstrap_servers names no AWS region; set AWS_REGION")
    role, session = entries.get("awsRoleArn", ""), entries.get("awsRoleSessionName", "")
    return MskTokenProvider(region, role, session, entries.get("awsProfileName", ""))


def _token_provider(given: Mapping[str, str], entries: Mapping[str, str]) -> TokenProvider:
    url = given.get("sasl.oauthbearer.token.endpoint.url")
    if not url:
        raise OptionsError(
            f"kafka: sasl.mechanism {OAUTH} needs sasl.oauthbearer.token.endpoint.url: the URL of a token endpoint, "
            "or a file: URL of a file with a token"
        )
    credentials = "sasl.oauthbearer.client.credentials.client."
    return TokenProvider(
        url,
        entries.get("clientId") or given.get(f"{credentials}id", ""),
        entries.get("clientSecret") or given.get(f"{credentials}secret", ""),
        entries.get("scope") or given.get("sasl.oauthbearer.scope", ""),
    )


def _tls(given: Mapping[str, str]) -> Tls:
    authorities = given.get("ssl.truststore.certificates")
    if path := given.get("ssl.truststore.location"):
        kind = given.get("ssl.truststore.type", "JKS").upper()
        if kind == keystores.PEM:
            authorities = keystores.text("ssl.truststore.location", path)
        else:
            authorities = keystores.read("ssl.truststore.location", path, kind, given.get("ssl.truststore.password")).trusted
    identity = None
    if "ssl.keystore.key" in given:
        identity = given["ssl.keystore.key"].strip() + "\n" + given.get("ssl.keystore.certificate.chain", "")
    elif path := given.get("ssl.keystore.location"):
        kind = given.get("ssl.keystore.type", "JKS").upper()
        if kind == keystores.PEM:
            identity = keystores.text("ssl.keystore.location", path)
        else:
            passwords = given.get("ssl.keystore.password"), given.get("ssl.key.password")
            identity = keystores.read("ssl.keystore.location", path, kind, *passwords).identity
    result = Tls(
        authorities=authorities,
        identity=identity,
        password=given.get("ssl.key.password"),
        checks_host=given.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
        protocols=tuple(name.strip() for name in given.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(",")),
        ciphers=_ciphers(given.get("ssl.cipher.suites", "")),
    )
    try:
        tls.context(result)
    except (ssl.SSLError, KeyError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise OptionsError(
            f"kafka: ssl.* can't be used ({str(reason).replace('_', ' ').lower()}): check the certificates, the key and "
            "ssl.key.password, ssl.enabled.protocols and ssl.cipher.suites"
        ) from None
    return result


def _ciphers(suites: str) -> str | None:
    """OpenSSL's names of the TLS 1.2 suites. OpenSSL always enables those of TLS 1.3.

    >>> _ciphers("TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    'ECDHE-RSA-AES128-GCM-SHA256'
    """
    names = [name.strip().removeprefix("TLS_").replace("WITH_", "") for name in suites.split(",") if "_WITH_" in name]
    names = [re.sub(r"(AES|CAMELLIA)_(\d+)", r"\1\2", name) for name in names]
    return ":".join(re.sub("(POLY1305)_SHA256", r"\1", name).replace("_", "-") for name in names) or None
