"""The profile: what a target of `type: upsert_kafka` may say, checked all at once.

Leaves to `session` what Spark makes of it and to `kafka_clients` what Kafka's clients make of it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from dbt.adapters.contracts.connection import Credentials
from dbt.adapters.spark.connections import SparkCredentials
from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.upsert_kafka import kafka_properties

EMBEDDED = "embedded"
SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
MAPPINGS = ("spark", "kafka", "schema_registry", "topic_defaults")
FILE_FORMATS = ("parquet", "orc", "delta")
TOPIC_DEFAULTS = ("partitions", "replication_factor", "config")
# dbt itself puts these into a profile's target.
DBT_FIELDS = ("type", "threads", "priority")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_server_list(servers: str) -> bool:
    """Whether `servers` reads host:port,host:port with ports that exist."""
    matches = [SERVER.fullmatch(server.strip()) for server in servers.split(",")]
    return all(match is not None and 0 < int(match[2]) < 65536 for match in matches)


@dataclass
class UpsertKafkaCredentials(Credentials):
    """A target of a profile. DESIGN: one cluster of Kafka, one Spark, one database for views and ordinary models."""

    database: str | None = None  # type: ignore[assignment]
    schema: str = ""
    bootstrap_servers: str = ""
    master: str | None = None
    """A Spark master; unset and without `remote`: all cores of this machine."""
    remote: str | None = None
    """A Spark Connect server, instead of a master."""
    spark: dict[str, Any] = field(default_factory=dict)
    """Spark configuration; wins over all that the adapter sets itself."""
    jars: list[str] | None = None
    """Local jars for machines without a package registry, instead of those that the adapter would fetch."""
    kafka: dict[str, Any] = field(default_factory=dict)
    """Kafka client properties for every topic, in the spelling of Java's clients."""
    schema_registry: dict[str, Any] = field(default_factory=dict)
    topic_defaults: dict[str, Any] = field(default_factory=dict)
    file_format: str | None = None
    """Of tables, incremental models, seeds and snapshots that name none."""

    # Not the profile's, so no field of it: the adapter says it.
    project_root: ClassVar[Path | None] = None

    @property
    def type(self) -> str:
        return "upsert_kafka"

    @property
    def unique_field(self) -> str:
        return self.bootstrap_servers

    def _connection_keys(self) -> tuple[str, ...]:
        return ("schema", "bootstrap_servers", "master", "remote", "jars", "file_format")

    def connection_info(self, *, with_aliases: bool = False) -> Iterable[tuple[str, Any]]:
        shown = super().connection_info(with_aliases=with_aliases)
        return [(name, self.server if name == "remote" else value) for name, value in shown]

    @property
    def server(self) -> str | None:
        """Of `remote` what may be shown: not its parameters, which may hold a token."""
        return self.remote.partition("/;")[0] if self.remote else None

    @property
    def state_dir(self) -> Path:
        """Where the project keeps its broker's data and its catalog."""
        return (self.project_root or Path.cwd()) / ".upsert_kafka"

    @classmethod
    def validate(cls, data: Any) -> None:
        problems = _problems(data)
        if problems:
            raise DbtRuntimeError("; ".join(problems))
        super().validate(data)

    @classmethod
    def __pre_deserialize__(cls, data: dict[str, Any]) -> dict[str, Any]:
        data = super().__pre_deserialize__(data)
        # On Spark a database is a schema; dbt still passes the key.
        return {**data, "database": None}

    def __post_init__(self) -> None:
        self.database = None
        self.kafka = {str(name): _text(value) for name, value in self.kafka.items()}
        self.spark = {str(name): _text(value) for name, value in self.spark.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wrong_method(method: Any) -> str:
    if method == "session":
        return "'method' is 'session': leave it out, Spark runs in the dbt process unless 'master' or 'remote' names another"
    return (
        f"'method' is {method!r}: topics are written through Spark's DataFrames, and Thrift, HTTP and ODBC carry SQL text only; "
        "remove it, and name a Spark master in 'master' or a Spark Connect server in 'remote'"
    )


def _problems_of_remote(remote: str, data: dict[str, Any]) -> list[str]:
    if not remote.startswith("sc://"):
        return [f"'remote' is '{remote}': must begin with sc://"]
    problems = []
    if data.get("jars"):
        problems.append("'jars' can't be sent to a Spark Connect server ('remote'): put them where it is started")
    if data.get("bootstrap_servers") == EMBEDDED and urlsplit(remote).hostname not in LOOPBACK:
        problems.append(f"'bootstrap_servers' is '{EMBEDDED}', which only this machine reaches, and 'remote' is another machine")
    return problems


def _problems(data: dict[str, Any]) -> list[str]:
    known = [f.name for f in fields(UpsertKafkaCredentials)] + list(DBT_FIELDS)
    problems = []
    others: set[str] = set()
    if "method" in data:
        problems.append(_wrong_method(data["method"]))
        others = {f.name for f in fields(SparkCredentials)}
    for name in sorted(set(data) - set(known) - others):
        near = difflib.get_close_matches(name, known, n=1)
        hint = f", did you mean '{near[0]}'?" if near else f"; known fields: {', '.join(sorted(known))}"
        problems.append(f"unknown field '{name}'{hint}")
    for name in ("schema", "bootstrap_servers"):
        if not data.get(name):
            problems.append(f"'{name}' is missing")
    for name in ("schema", "bootstrap_servers", "master", "remote"):
        if data.get(name) is not None and not isinstance(data[name], str):
            problems.append(f"'{name}' is {data[name]!r}: must be text")
    servers = data.get("bootstrap_servers")
    if isinstance(servers, str) and servers and servers != EMBEDDED and not is_server_list(servers):
        problems.append(f"'bootstrap_servers' is '{servers}': must be '{EMBEDDED}' or a list host:port,host:port")
    if data.get("master") and data.get("remote"):
        problems.append("'master' and 'remote' exclude each other: 'remote' is a Spark Connect server, remove one of them")
    if data.get("file_format") not in (None, *FILE_FORMATS):
        problems.append(f"'file_format' is {data['file_format']!r}: must be one of {', '.join(FILE_FORMATS)}")
    if isinstance(data.get("remote"), str):
        problems += _problems_of_remote(data["remote"], data)
    for name in MAPPINGS:
        if data.get(name) is not None and not isinstance(data[name], dict):
            problems.append(f"'{name}' must be a mapping of names to values")
    if data.get("database") and data["database"] != data.get("schema"):
        problems.append(f"'database' is '{data['database']}': leave it out, on Spark it is the schema")
    for name, value in data["kafka"].items() if isinstance(data.get("kafka"), dict) else ():
        # Without the value, which may be a secret under a wrong name.
        if refused := kafka_properties.REFUSED.get(str(name)):
            problems.append(f"'kafka: {name}' can't be set: {refused}")
        elif wrong := kafka_properties.problem(str(name), _text(value)):
            problems.append(f"'kafka: {name}' {wrong}")
    defaults = data.get("topic_defaults")
    for name in sorted(set(defaults) - set(TOPIC_DEFAULTS)) if isinstance(defaults, dict) else ():
        problems.append(f"unknown field 'topic_defaults.{name}'; known fields: {', '.join(TOPIC_DEFAULTS)}")
    return problems
