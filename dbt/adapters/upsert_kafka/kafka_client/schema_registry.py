"""A client of Confluent's Schema Registry API: look up, check and register schemas; ids are asked for once a process.

Every failure is one line with the registry, the subject and what to do. Leaves to `formats.avro_confluent` what a schema is.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import requests

from dbt.adapters.upsert_kafka.errors import SchemaRegistryError

SETTINGS = (
    "url",
    "basic_auth_user_info",
    "basic_auth_credentials_source",
    "bearer_auth_token",
    "bearer_auth_credentials_source",
    "ssl_truststore_location",
    "ssl_keystore_location",
)
_TIMEOUT = (10, 30)
_NOT_FOUND, _CONFLICT = 404, 409
_UNAUTHORIZED = (401, 403)
_LONGEST_REASON = 400


@dataclass(frozen=True)
class RegistrySettings:
    """Where a registry is and how to be let in."""

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    truststore: str | None = None
    """A PEM file of authorities."""
    keystore: str | None = None
    """A PEM file with the client's certificate and its key."""

    @classmethod
    def of(cls, profile: Mapping[str, Any], options: Mapping[str, Any]) -> RegistrySettings:
        """The profile's `schema_registry`, with what a model's options say instead.

        The profile may spell a name as Flink does (`basic-auth.user-info`) or as Confluent's clients do (`basic.auth.user.info`).
        """
        merged = {re.sub(r"[.-]", "_", name): str(value) for name, value in profile.items()}
        if unknown := sorted(set(merged) - set(SETTINGS)):
            raise SchemaRegistryError(
                f"schema_registry in the profile has no setting '{unknown[0]}': it takes {', '.join(SETTINGS)}"
            )
        merged |= {name: str(options[name]) for name in SETTINGS if options.get(name) is not None}
        if not merged.get("url"):
            raise SchemaRegistryError(
                "format avro-confluent needs a registry: set schema_registry: {url: …} in the profile, or avro_confluent_url"
            )
        if merged.get("basic_auth_credentials_source") == "SASL_INHERIT":
            raise SchemaRegistryError("basic_auth_credentials_source=SASL_INHERIT is not supported: set basic_auth_user_info")
        for name in ("ssl_truststore_location", "ssl_keystore_location"):
            if merged.get(name, "").lower().endswith((".jks", ".p12", ".pfx")):
                raise SchemaRegistryError(
                    f"{name} is '{merged[name]}': the registry's client takes PEM files, convert it (keytool, openssl)"
                )
        urls, user_info = [], merged.get("basic_auth_user_info")
        for url in merged["url"].split(","):
            parts = urlsplit(url.strip().rstrip("/"))
            if parts.username is not None:
                user_info = user_info or f"{unquote(parts.username)}:{unquote(parts.password or '')}"
                parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
            urls.append(urlunsplit(parts))
        return cls(
            tuple(urls),
            user_info,
            merged.get("bearer_auth_token"),
            merged.get("ssl_truststore_location"),
            merged.get("ssl_keystore_location"),
        )


class SchemaRegistry:
    """One registry. `connect` shares one per settings, and with it the ids that are known already."""

    def __init__(self, settings: RegistrySettings) -> None:
        self.settings = settings
        self._ids: dict[tuple[str, str], int] = {}

    def find(self, subject: str, schema: str) -> int | None:
        """The id of this very schema under the subject, if it is registered there."""
        if (subject, schema) not in self._ids:
            status, answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}", {"schema": schema})
            if _is_missing(status, answer):
                return None
            self._ids[subject, schema] = int(self._checked(status, answer, subject)["id"])
        return self._ids[subject, schema]

    def check(self, subject: str, schema: str) -> None:
        """Raise if the registry would refuse the schema; changes nothing."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        status, answer = self._ask("POST", path, {"schema": schema})
        if not _is_missing(status, answer) and not self._checked(status, answer, subject).get("is_compatible", True):
            raise self._incompatible(subject, "; ".join(answer.get("messages") or []))

    def register(self, subject: str, schema: str) -> int:
        """The id of the schema under the subject, registered if it was not."""
        if (found := self.find(subject, schema)) is not None:
            return found
        status, answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})
        if status == _CONFLICT:
            raise self._incompatible(subject, str(answer.get("message", "")))
        self._ids[subject, schema] = int(self._checked(status, answer, subject)["id"])
        return self._ids[subject, schema]

    def schemas(self, subject: str) -> dict[int, str]:
        """Every version under the subject, by id; none if there is no such subject."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        status, versions = self._ask("GET", path)
        if _is_missing(status, versions):
            return {}
        found = {}
        for version in self._checked(status, versions, subject):
            status, answer = self._ask("GET", f"{path}/{version}")
            answer = self._checked(status, answer, subject)
            found[int(answer["id"])] = str(answer["schema"])
        return found

    def _incompatible(self, subject: str, reason: str) -> SchemaRegistryError:
        reason = re.sub(r"^([\w$]+\.)+\w*Exception:\s*", "", " ".join(reason.split()))[:_LONGEST_REASON]
        return SchemaRegistryError(
            f"Schema registry {self.settings.urls[0]}: subject '{subject}' refuses the schema of these columns as incompatible"
            f"{': ' + reason.rstrip('.') if reason else ''}. Nothing was written. Change the columns, relax the compatibility of "
            "the subject, or name another one (key_avro_confluent_subject, value_avro_confluent_subject)"
        )

    def _checked(self, status: int, answer: Any, subject: str) -> Any:
        if status in _UNAUTHORIZED:
            raise SchemaRegistryError(
                f"Schema registry {self.settings.urls[0]}: not let in (HTTP {status}) for subject '{subject}': "
                "check basic_auth_user_info or bearer_auth_token in schema_registry of the profile"
            )
        if status >= 300:
            reason = answer.get("message", "") if isinstance(answer, dict) else ""
            raise SchemaRegistryError(
                f"Schema registry {self.settings.urls[0]}: HTTP {status} for subject '{subject}': "
                f"{' '.join(str(reason).split())[:_LONGEST_REASON] or 'no reason given; is this the address of its API?'}"
            )
        return answer

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json", "Content-Type": "application/vnd.schemaregistry.v1+json"}
        if self.settings.token:
            headers["Authorization"] = f"Bearer {self.settings.token}"
        user, _, password = (self.settings.user_info or "").partition(":")
        failure: Exception | None = None
        for url in self.settings.urls:
            try:
                response = requests.request(
                    method,
                    url + path,
                    data=None if body is None else json.dumps(body),
                    headers=headers,
                    auth=(user, password) if self.settings.user_info and not self.settings.token else None,
                    verify=self.settings.truststore or True,
                    cert=self.settings.keystore,
                    timeout=_TIMEOUT,
                )
            except (requests.RequestException, OSError) as error:
                failure = error
                continue
            try:
                return response.status_code, response.json()
            except requests.JSONDecodeError:
                return response.status_code, {}
        raise SchemaRegistryError(
            f"Schema registry {', '.join(self.settings.urls)} did not answer ({_cause(failure)}): "
            "check schema_registry.url in the profile, its certificate (ssl_truststore_location), and the network"
        )


def _is_missing(status: int, answer: Any) -> bool:
    """Whether the registry says that it has no such subject or schema; a 404 of any other server has no such code."""
    return status == _NOT_FOUND and isinstance(answer, dict) and str(answer.get("error_code", "")).startswith("404")


def _cause(error: BaseException | None) -> str:
    """The innermost reason in a few words: requests wraps what the network said several times."""
    while error is not None and (inner := error.__context__ or error.__cause__) is not None:
        error = inner
    return " ".join(str(error).split())[:200] or type(error).__name__


_registries: dict[RegistrySettings, SchemaRegistry] = {}
_lock = threading.Lock()


def connect(settings: RegistrySettings) -> SchemaRegistry:
    """The process's client of this registry."""
    with _lock:
        return _registries.setdefault(settings, SchemaRegistry(settings))
