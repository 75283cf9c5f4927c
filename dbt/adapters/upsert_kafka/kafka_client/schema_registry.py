"""A client of Confluent's Schema Registry API: looks up, checks and registers schemas, and caches their ids per process.

Every error is one line with the registry, the subject and what to do. Leaves to `formats` what a schema contains.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import requests

from dbt.adapters.upsert_kafka.errors import IncompatibleSchemaError, SchemaRegistryError
from dbt.adapters.upsert_kafka.kafka_client.schema_references import AVRO, inlined

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
_NOT_FOUND, _NOT_ALLOWED, _CONFLICT = 404, 405, 409
_UNAUTHORIZED = (401, 403)
_MAX_REASON_LENGTH = 400


@dataclass(frozen=True)
class Reference:
    """A schema of another subject, and the name under which a schema refers to it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Schema:
    """A schema as the registry stores it."""

    text: str
    type: str = AVRO
    references: tuple[Reference, ...] = ()

    def body(self) -> dict[str, Any]:
        """The registry's JSON. AVRO is the default, and registries before Confluent 5.5 know nothing else."""
        kind = {} if self.type == AVRO else {"schemaType": self.type}
        return {"schema": self.text, **kind} | ({"references": list(map(asdict, self.references))} if self.references else {})


@dataclass(frozen=True)
class RegistrySettings:
    """URLs and credentials of a registry."""

    urls: tuple[str, ...]
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    truststore: str | None = None
    """A PEM file with the trusted certificates."""
    keystore: str | None = None
    """A PEM file with the client's certificate and key."""

    @classmethod
    def of(cls, profile: Mapping[str, Any], options: Mapping[str, Any]) -> RegistrySettings:
        """The profile's `schema_registry`, overridden by a model's options.

        The profile may use the names of Flink (`basic-auth.user-info`) or of Confluent's clients (`basic.auth.user.info`).
        """
        merged = {re.sub(r"[.-]", "_", name): str(value) for name, value in profile.items()}
        if unknown := sorted(set(merged) - set(SETTINGS)):
            raise SchemaRegistryError(
                f"schema_registry in the profile: unknown setting '{unknown[0]}'; known settings: {', '.join(SETTINGS)}"
            )
        merged |= {name: str(options[name]) for name in SETTINGS if options.get(name) is not None}
        if not merged.get("url"):
            raise SchemaRegistryError(
                "avro-confluent and json-schema-confluent need a registry: set schema_registry: {url: …} in the profile"
            )
        if merged.get("basic_auth_credentials_source") == "SASL_INHERIT":
            raise SchemaRegistryError("basic_auth_credentials_source=SASL_INHERIT is not supported: set basic_auth_user_info")
        for name in ("ssl_truststore_location", "ssl_keystore_location"):
            if merged.get(name, "").lower().endswith((".jks", ".p12", ".pfx")):
                raise SchemaRegistryError(f"{name} is '{merged[name]}': must be a PEM file. Convert it with keytool and openssl.")
        urls, user_info = [], merged.get("basic_auth_user_info")
        for url in merged["url"].split(","):
            parts = urlsplit(url.strip().rstrip("/"))
            if parts.username is not None:
                user_info = user_info or f"{unquote(parts.username)}:{unquote(parts.password or '')}"
                parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
            urls.append(urlunsplit(parts))
        return cls(
            urls=tuple(urls),
            user_info=user_info,
            token=merged.get("bearer_auth_token"),
            truststore=merged.get("ssl_truststore_location"),
            keystore=merged.get("ssl_keystore_location"),
        )


class SchemaRegistry:
    """One registry. `connect` returns the same object for the same settings, so that ids are cached."""

    def __init__(self, settings: RegistrySettings) -> None:
        self.settings = settings
        self._ids: dict[tuple[str, Schema], int] = {}
        self._referenced: dict[tuple[str, int], Schema] = {}
        self._with_level: set[str] = set()

    def find(self, subject: str, schema: Schema) -> int | None:
        """The id of the schema under the subject; None if it is not registered there."""
        if (subject, schema) not in self._ids:
            status, answer = self._request("POST", f"/subjects/{quote(subject, safe='')}", schema.body())
            if _is_missing(status, answer):
                return None
            self._ids[subject, schema] = int(self._checked(status, answer, subject)["id"])
        return self._ids[subject, schema]

    def check(self, subject: str, schema: Schema) -> None:
        """Raise SchemaRegistryError if the registry would refuse the schema. Registers nothing."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions"
        # Against the versions that the subject's level names: the last one, or all if it is transitive.
        status, answer = self._request("POST", f"{path}?verbose=true", schema.body())
        if status == _NOT_ALLOWED or (status == _NOT_FOUND and not _is_missing(status, answer)):
            # A registry that compares with one version only, such as Redpanda's. It refuses others when they are registered.
            status, answer = self._request("POST", f"{path}/latest?verbose=true", schema.body())
        if not _is_missing(status, answer) and not self._checked(status, answer, subject).get("is_compatible", True):
            raise self._incompatible(subject, "; ".join(answer.get("messages") or []))

    def register(self, subject: str, schema: Schema, compatibility: str | None = None) -> int:
        """Register the schema under the subject if necessary; returns its id.

        Args:
            compatibility: the compatibility level of the subject, if this is its only schema and it has no level of its own.
        """
        found = self.find(subject, schema)
        is_new = False
        if found is None:
            is_new = compatibility is not None and not self.versions(subject)
            status, answer = self._request("POST", f"/subjects/{quote(subject, safe='')}/versions", schema.body())
            if status == _CONFLICT:
                raise self._incompatible(subject, str(answer.get("message", "")))
            found = int(self._checked(status, answer, subject)["id"])
        # After the first version: Apicurio has no level for a subject without one. A run that failed between the two left a
        # subject with one version and no level. (Apicurio reports NONE for such a subject, which somebody may have set too.)
        if compatibility is not None and subject not in self._with_level:
            if is_new or (self._has_no_level(subject) and len(self.versions(subject)) == 1):
                level = {"compatibility": compatibility}
                self._checked(*self._request("PUT", f"/config/{quote(subject, safe='')}", level), subject)
            self._with_level.add(subject)
        self._ids[subject, schema] = found
        return found

    def _has_no_level(self, subject: str) -> bool:
        status, answer = self._request("GET", f"/config/{quote(subject, safe='')}")
        return _is_missing(status, answer)

    def schemas(self, subject: str) -> dict[int, str]:
        """The texts of all versions of the subject by schema id. Avro schemas stand by themselves, because readers need them."""
        found = self.versions(subject)
        return {i: self.whole(subject, schema) if schema.type == AVRO else schema.text for i, schema in found.items()}

    def whole(self, subject: str, schema: Schema) -> str:
        """The text of a schema of the subject, with the definitions of the schemas that it refers to."""
        if not schema.references:
            return schema.text
        try:
            return inlined(schema.type, schema.text, self._texts(subject, schema))
        except ValueError as error:
            raise SchemaRegistryError(
                f"Schema registry {self.settings.urls[0]}: the schema of subject '{subject}' has references that can't be "
                f"resolved: {str(error)[:_MAX_REASON_LENGTH]}. Nothing was written. Check schema_references of the format."
            ) from error

    def _texts(self, subject: str, schema: Schema) -> dict[str, str]:
        """The texts of the schemas to which a schema refers, directly or through others, by their names."""
        found: dict[str, str] = {}
        for reference in schema.references:
            other = self._version(subject, reference)
            found |= {**self._texts(subject, other), reference.name: other.text}
        return found

    def _version(self, subject: str, reference: Reference) -> Schema:
        place = (reference.subject, reference.version)
        if place not in self._referenced:
            status, answer = self._request("GET", f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}")
            if _is_missing(status, answer):
                raise SchemaRegistryError(
                    f"Schema registry {self.settings.urls[0]}: the schema of subject '{subject}' refers to version "
                    f"{reference.version} of subject '{reference.subject}', which the registry does not have. Nothing was "
                    "written. Register it, or change schema_references of the format."
                )
            self._referenced[place] = _schema(self._checked(status, answer, reference.subject))
        return self._referenced[place]

    def versions(self, subject: str) -> dict[int, Schema]:
        """All versions of the subject by schema id; empty if the subject does not exist."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        status, versions = self._request("GET", path)
        if _is_missing(status, versions):
            return {}
        found = {}
        for version in self._checked(status, versions, subject):
            status, answer = self._request("GET", f"{path}/{version}")
            answer = self._checked(status, answer, subject)
            found[int(answer["id"])] = _schema(answer)
        return found

    def _incompatible(self, subject: str, reason: str) -> IncompatibleSchemaError:
        reason = re.sub(r"^([\w$]+\.)+\w*Exception:\s*", "", " ".join(reason.split()))[:_MAX_REASON_LENGTH]
        return IncompatibleSchemaError(
            f"Schema registry {self.settings.urls[0]}: subject '{subject}' refuses the schema of these columns as incompatible"
            f"{': ' + reason.rstrip('.') if reason else ''}. Nothing was written. Change the columns, relax the subject's "
            "compatibility, or name another subject with the option subject of the format."
        )

    def _checked(self, status: int, answer: Any, subject: str) -> Any:
        if status in _UNAUTHORIZED:
            raise SchemaRegistryError(
                f"Schema registry {self.settings.urls[0]}: access to subject '{subject}' was denied (HTTP {status}): "
                "check basic_auth_user_info or bearer_auth_token in schema_registry of the profile"
            )
        if status >= 300:
            reason = answer.get("message", "") if isinstance(answer, dict) else ""
            raise SchemaRegistryError(
                f"Schema registry {self.settings.urls[0]}: HTTP {status} for subject '{subject}': "
                f"{' '.join(str(reason).split())[:_MAX_REASON_LENGTH] or 'no reason given. Check the URL of its API.'}"
            )
        return answer

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
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


def _schema(answer: Mapping[str, Any]) -> Schema:
    references = [Reference(str(r["name"]), str(r["subject"]), int(r["version"])) for r in answer.get("references") or []]
    return Schema(str(answer["schema"]), str(answer.get("schemaType") or AVRO), tuple(references))


def _is_missing(status: int, answer: Any) -> bool:
    """Whether the subject, version or schema does not exist.

    The registry's error code says so: 40401, 40402, 40403 and others, or 404 itself. A 404 of another server has no code.
    """
    code = answer.get("error_code") if isinstance(answer, dict) else None
    return status == _NOT_FOUND and isinstance(code, int) and _NOT_FOUND in (code, code // 100)


def _cause(error: BaseException | None) -> str:
    """The text of the innermost error: requests wraps the network's error several times."""
    while error is not None and (inner := error.__context__ or error.__cause__) is not None:
        error = inner
    return " ".join(str(error).split())[:200] or type(error).__name__


_registries: dict[RegistrySettings, SchemaRegistry] = {}
_lock = threading.Lock()


def connect(settings: RegistrySettings) -> SchemaRegistry:
    """The client of this registry, one per process."""
    with _lock:
        return _registries.setdefault(settings, SchemaRegistry(settings))
