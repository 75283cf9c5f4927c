"""The profile: the fields of a target of `type: upsert_kafka`. All errors are reported at once.

Leaves to `spark.session` and `kafka_client.clients` how the fields are used.
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
DEFAULT_STATE_TOPIC = "dbt-upsert-kafka.state"
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""The characters that Kafka allows in the name of a topic."""
SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
MAPPINGS = ("spark", "kafka", "schema_registry", "topic_defaults")
FILE_FORMATS = ("parquet", "orc", "delta")
TOPIC_DEFAULTS = ("partitions", "replication_factor", "config")
# dbt adds these fields to every target.
DBT_FIELDS = ("type", "threads", "priority")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
MASTER = re.compile(r"local(\[|-cluster\[|$)|spark://|yarn|k8s://")


def is_server_list(servers: str) -> bool:
    """Whether `servers` is a list host:port,host:port with valid ports."""
    matches = [SERVER.fullmatch(server.strip()) for server in servers.split(",")]
    return all(match is not None and 0 < int(match[2]) < 65536 for match in matches)


@dataclass
class UpsertKafkaCredentials(Credentials):
    """A target of a profile: one Kafka cluster, one Spark, one database for views and ordinary models."""

    database: str | None = None  # type: ignore[assignment]
    schema: str = ""
    bootstrap_servers: str = ""
    master: str | None = None
    """A Spark master; if neither it nor `remote` is set, Spark uses all cores of this machine."""
    remote: str | None = None
    """A Spark Connect server, instead of a master."""
    spark: dict[str, Any] = field(default_factory=dict)
    """Spark configuration; overrides what the adapter sets."""
    jars: list[str] | None = None
    """Jars instead of those that the adapter would download: files, or Maven coordinates, which are downloaded without their
    dependencies."""
    kafka: dict[str, Any] = field(default_factory=dict)
    """Kafka client properties for every topic, with the names of Java's clients."""
    schema_registry: dict[str, Any] = field(default_factory=dict)
    topic_defaults: dict[str, Any] = field(default_factory=dict)
    environment: str | None = None
    """Tells the runs of one project apart that use the same cluster; by default the target's name."""
    state_topic: str = DEFAULT_STATE_TOPIC
    """Where the state records are; 'none' for no state."""
    topic_prefix: str = ""
    """Before the name of every topic that a model writes to."""
    topic_suffix: str = ""
    """After it."""
    checkpoint_location: str | None = None
    """The folder of the checkpoints of streams; by default in the project's folder."""
    file_format: str | None = None
    """The default `file_format` of tables, incremental models, seeds and snapshots."""

    resident_idle_minutes: float = 30
    """After this time without a command the resident dbt (`upsert-kafka dbt`) ends."""

    # Not a field of the profile: the adapter sets it.
    project_root: ClassVar[Path | None] = None

    @property
    def type(self) -> str:
        return "upsert_kafka"

    @property
    def unique_field(self) -> str:
        return self.bootstrap_servers

    def _connection_keys(self) -> tuple[str, ...]:
        return (
            *("schema", "bootstrap_servers", "master", "remote", "jars", "file_format"),
            *("environment", "state_topic", "topic_prefix", "topic_suffix"),
        )

    def connection_info(self, *, with_aliases: bool = False) -> Iterable[tuple[str, Any]]:
        shown = super().connection_info(with_aliases=with_aliases)
        return [(name, self.server if name == "remote" else value) for name, value in shown if value not in (None, "")]

    @property
    def server(self) -> str | None:
        """`remote` without its parameters, which may contain a token."""
        return self.remote.partition("/;")[0] if self.remote else None

    def topic_name(self, name: str) -> str:
        """The name with the target's prefix and suffix: of a topic that a model writes to, or of a registry subject."""
        return f"{self.topic_prefix}{name}{self.topic_suffix}"

    @property
    def state_dir(self) -> Path:
        """The project's folder for the data of the embedded broker and the catalog."""
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
        # In Spark a database is a schema; dbt passes the key anyway.
        return {**data, "database": None}

    def __post_init__(self) -> None:
        self.database = None
        self.kafka = {str(name): _text(value) for name, value in self.kafka.items()}
        self.spark = {str(name): _text(value) for name, value in self.spark.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wrong_method(method: Any) -> str:
    if method == "session":
        return "'method' is 'session': leave it out, Spark runs in the dbt process unless 'master' or 'remote' is set"
    return (
        f"'method' is {method!r}: topics are written through Spark's DataFrames, and Thrift, HTTP and ODBC carry SQL text only. "
        "Remove it, and set 'master' to a Spark master or 'remote' to a Spark Connect server"
    )


def _problems_of_remote(remote: str, data: dict[str, Any]) -> list[str]:
    if not remote.startswith("sc://"):
        return [f"'remote' is '{remote}': must begin with sc://"]
    problems = []
    if data.get("jars"):
        problems.append("'jars' can't be sent to a Spark Connect server ('remote'): configure them on the server")
    if data.get("bootstrap_servers") == EMBEDDED and urlsplit(remote).hostname not in LOOPBACK:
        problems.append(
            f"'bootstrap_servers' is '{EMBEDDED}', which only this machine can reach, and 'remote' is another machine"
        )
    return problems


def _problems_of_names(data: dict[str, Any]) -> list[str]:
    """The problems of the fields that tell environments apart."""
    problems = []
    for name in ("environment", "state_topic", "topic_prefix", "topic_suffix"):
        value = data.get(name)
        if name not in data or (name == "environment" and value is None):
            continue
        if not isinstance(value, str):
            problems.append(f"'{name}' is {value!r}: must be text; put it in quotes")
        elif name in ("environment", "state_topic") and not value.strip():
            problems.append(f"'{name}' is empty: {_IF_EMPTY[name]}")
        elif name != "environment" and value and (not TOPIC_NAME.fullmatch(value) or (name, value) in _RESERVED):
            problems.append(f"'{name}' is '{value}': Kafka allows letters, digits, '.', '_' and '-', at most 249 characters")
    return problems


_IF_EMPTY = {
    "environment": "leave it out to use the name of the target",
    "state_topic": "leave it out for the default, or set 'none' to publish without owners and state",
}
_RESERVED = {("state_topic", "."), ("state_topic", "..")}


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
    for name in ("schema", "bootstrap_servers", "master", "remote", "checkpoint_location"):
        if data.get(name) is not None and not isinstance(data[name], str):
            problems.append(f"'{name}' is {data[name]!r}: must be text")
    servers = data.get("bootstrap_servers")
    if isinstance(servers, str) and servers and servers != EMBEDDED and not is_server_list(servers):
        problems.append(f"'bootstrap_servers' is '{servers}': must be '{EMBEDDED}' or a list host:port,host:port")
    if isinstance(data.get("master"), str) and not MASTER.match(data["master"]):
        problems.append(f"'master' is '{data['master']}': must be local, local[n], spark://host:port, yarn or k8s://…")
    if data.get("master") and data.get("remote"):
        problems.append("'master' and 'remote' exclude each other: 'remote' is a Spark Connect server, remove one of them")
    if data.get("file_format") not in (None, *FILE_FORMATS):
        problems.append(f"'file_format' is {data['file_format']!r}: must be one of {', '.join(FILE_FORMATS)}")
    if isinstance(data.get("remote"), str):
        problems += _problems_of_remote(data["remote"], data)
    problems += _problems_of_names(data)
    minutes = data.get("resident_idle_minutes", 1)
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or minutes <= 0:
        problems.append(f"'resident_idle_minutes' is {minutes!r}: must be a number of minutes above 0")
    for name in MAPPINGS:
        if data.get(name) is not None and not isinstance(data[name], dict):
            problems.append(f"'{name}' must be a mapping of names to values")
    if data.get("database") and data["database"] != data.get("schema"):
        problems.append(f"'database' is '{data['database']}': leave it out, in Spark it is the schema")
    for name, value in data["kafka"].items() if isinstance(data.get("kafka"), dict) else ():
        # The value is not shown: it may be a secret with a misspelt name.
        if refused := kafka_properties.REFUSED.get(str(name)):
            problems.append(f"'kafka: {name}' can't be set: {refused}")
        elif meant := kafka_properties.misspelt(str(name)):
            problems.append(f"'kafka: {name}' is not a property of Kafka's clients, did you mean '{meant}'?")
        elif wrong := kafka_properties.problem(str(name), _text(value)):
            problems.append(f"'kafka: {name}' {wrong}")
    defaults = data.get("topic_defaults")
    for name in sorted(set(defaults) - set(TOPIC_DEFAULTS)) if isinstance(defaults, dict) else ():
        problems.append(f"unknown field 'topic_defaults.{name}'; known fields: {', '.join(TOPIC_DEFAULTS)}")
    return problems
