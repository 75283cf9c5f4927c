"""The state record of a topic: its fields and their JSON, which is the value of a message whose key is the topic's name.

Records hold names, types, formats and numbers. They never hold SQL, so that writing to the state topic is not code execution, and
never a secret. `trust` decides whether a record still describes the live topic.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from dbt.adapters.upsert_kafka.errors import StateError

VERSION = 1
"""Raised when a reader of an older version would misunderstand a record. Unknown fields are ignored."""


@dataclass(frozen=True)
class Owner:
    """The one model that publishes to a topic."""

    project: str
    environment: str
    """The profile's `environment`, by default the target's name."""
    schema: str
    model: str

    def __str__(self) -> str:
        return f"model {self.model} of project {self.project}, environment {self.environment}, schema {self.schema}"


@dataclass(frozen=True)
class Run:
    """One run of a model: the one that claimed the topic or published last."""

    invocation: str
    """dbt's invocation_id."""
    host: str
    started_at: str

    def __str__(self) -> str:
        return f"invocation {self.invocation} on {self.host}, started {self.started_at}"


@dataclass(frozen=True)
class Layout:
    """How rows became messages: typed columns and formats."""

    key: str
    """Format, fields and options of the key as JSON text; other text means other bytes for the same key."""
    value: str
    """The same of the value."""
    columns: tuple[tuple[str, str], ...]
    """Names and Spark SQL types, in the SELECT's order."""
    time_zone: str | None = None
    """Spark's session time zone, with which the SELECT was computed. None in records of earlier versions."""


@dataclass(frozen=True)
class View:
    """What the relation of the model shows. With the layout it is all that a process without a catalog needs to create it."""

    materialization: str
    """`upsert_kafka`: the last row of each key; `kafka`: all messages, with Kafka's metadata."""
    key_columns: tuple[str, ...] = ()
    """The columns of the key, in the order of the key's fields, whose names may lack the prefix of `key_fields_prefix`."""
    ignore_parse_errors: bool = False


@dataclass(frozen=True)
class Published:
    """The last run that completed."""

    at: str
    guarantee: str


@dataclass(frozen=True)
class Log:
    """Where the topic's partitions began and ended after the last run, and which rows it then consisted of."""

    first: Mapping[int, int]
    end: Mapping[int, int]
    live_keys: int | None = None
    digest: str | None = None
    """Of the rows; None if the topic does not consist of exactly the rows."""
    seed: int | None = None
    """A random number of the topic, with which the rows were hashed. Digests and snapshots with different seeds are not
    comparable. None without a digest."""

    @property
    def is_comparable(self) -> bool:
        """Whether the next run can compare its rows with the digest."""
        return self.digest is not None and self.seed is not None


@dataclass(frozen=True)
class Lease:
    """The process that runs a continuous stream now. It renews the lease until it ends; see `state.lease`."""

    id: str
    host: str
    process: int
    machine: str
    """What process ids are unique in: the boot and the process namespace. Empty if that is not known."""
    started_at: str
    until: float
    """Unix time. Afterwards the lease counts no more."""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, started {self.started_at}"


SourceOffsets = Mapping[str, Mapping[int, int]]
"""The next offset to read, by topic and partition. Of a Delta table: the next file, by `delta:<id>` and commit."""
DELTA = "delta:"
"""No topic has such a name."""


@dataclass(frozen=True)
class Stream:
    """How far a stream has published. Under exactly-once it is written in the transaction of the batch."""

    definition: Mapping[str, str]
    """Hashes of what the published rows depend on (SELECT, options, sources, …), to refuse a checkpoint of something else."""
    query: str
    """The name of the checkpoint. A stream that starts over gets another."""
    batch: int
    """The last batch that was published; -1 before the first."""
    offsets: SourceOffsets
    """Where the next batch begins."""
    topics: Mapping[str, str]
    """The ids of the source topics."""
    is_stateless: bool
    refresh: Mapping[int, int] | None = None
    """Where the topic ended when --full-refresh began. Keys whose last record is older are deleted when all events are read."""
    lease: Lease | None = None
    """Only while `upsert-kafka stream` runs. Written as a message of its own."""


@dataclass(frozen=True)
class StateRecord:
    """All that is remembered about one topic."""

    topic: str
    cluster_id: str
    topic_id: str | None
    """None from brokers before 2.8, which have no topic ids."""
    owner: Owner
    alias: str
    """Name of the relation, in the owner's schema."""
    run: Run
    created: bool = False
    """Whether a run of the owner created the topic."""
    layout: Layout | None = None
    view: View | None = None
    """None after a claim, and in records of versions that did not restore relations."""
    published: Published | None = None
    """None after a claim: the first run has not completed."""
    log: Log | None = None
    stream: Stream | None = None
    """Only of models with a trigger."""

    def encode(self) -> bytes:
        """The message's value."""
        filled = {name: value for name, value in asdict(self).items() if value is not None}
        if self.stream is not None:
            del filled["stream"]["lease"]
        return json.dumps({"version": VERSION, **filled}, separators=(",", ":"), sort_keys=True).encode()

    def describes_same(self, other: StateRecord | None) -> bool:
        """Whether `other` says the same apart from which run said it: then nothing needs to be written."""
        return other is not None and _without_run(self) == _without_run(other)


def now_text() -> str:
    """The current time, see `time_text`."""
    return time_text(time.time())


def time_text(seconds: float) -> str:
    """A Unix time as records and messages have it, in UTC.

    >>> time_text(0)
    '1970-01-01 00:00:00Z'
    """
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def encode_lease(lease: Lease) -> bytes:
    """The value of a lease's message."""
    return json.dumps(asdict(lease), separators=(",", ":"), sort_keys=True).encode()


def decode(topic: str, value: bytes, lease: bytes | None = None) -> StateRecord:
    """The record of a message.

    Args:
        lease: the value of the message of the topic's lease.

    Raises:
        StateError: the record is of a newer version, or not a record.
    """
    try:
        found = json.loads(value)
        version = found["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(topic, f"it is not a state record ({type(error).__name__})") from error
    if version != VERSION:
        raise StateError(
            f"the state record of topic '{topic}' has version {version}, this dbt-upsert-kafka reads version {VERSION}. "
            "Upgrade dbt-upsert-kafka; nothing was written"
        )
    try:
        record = _record(found)
        if lease is None or record.stream is None:
            return record
        return replace(record, stream=replace(record.stream, lease=_lease(json.loads(lease))))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(topic, f"a field is missing or has a wrong type ({error})") from error


def _record(found: dict[str, Any]) -> StateRecord:
    layout, view, log = found.get("layout"), found.get("view"), found.get("log")
    return StateRecord(
        topic=_text(found["topic"]),
        cluster_id=_text(found["cluster_id"]),
        topic_id=None if found.get("topic_id") is None else _text(found["topic_id"]),
        owner=_texts(Owner, found["owner"]),
        alias=_text(found["alias"]),
        run=_texts(Run, found["run"]),
        created=found.get("created") is True,
        layout=layout and _layout(layout),
        view=view and _view(view),
        published=found.get("published") and _texts(Published, found["published"]),
        log=log and _log(log),
        stream=found.get("stream") and _stream(found["stream"]),
    )


def _stream(found: Mapping[str, Any]) -> Stream:
    refresh = found.get("refresh")
    return Stream(
        definition={_text(name): _text(value) for name, value in found["definition"].items()},
        query=_text(found["query"]),
        batch=int(found["batch"]),
        offsets={_text(topic): _offsets(partitions) for topic, partitions in found["offsets"].items()},
        topics={_text(topic): _text(id) for topic, id in found["topics"].items()},
        is_stateless=found["is_stateless"] is True,
        refresh=None if refresh is None else _offsets(refresh),
    )


def _lease(found: Mapping[str, Any]) -> Lease:
    texts = {name: _text(found[name]) for name in ("id", "host", "machine", "started_at")}
    return Lease(**texts, process=int(found["process"]), until=float(found["until"]))


def _log(found: Mapping[str, Any]) -> Log:
    seed = found.get("seed")
    if not isinstance(seed, int | None):
        raise TypeError(f"{seed!r} is not a seed")
    return Log(_offsets(found["first"]), _offsets(found["end"]), found.get("live_keys"), found.get("digest"), seed)


def _layout(found: Mapping[str, Any]) -> Layout:
    zone = found.get("time_zone")
    columns = tuple((_text(n), _text(t)) for n, t in found["columns"])
    return Layout(_text(found["key"]), _text(found["value"]), columns, None if zone is None else _text(zone))


def _view(found: Mapping[str, Any]) -> View:
    columns = tuple(_text(name) for name in found["key_columns"])
    return View(_text(found["materialization"]), columns, found["ignore_parse_errors"] is True)


def _texts(cls: type[Any], found: Mapping[str, Any]) -> Any:
    return cls(**{field.name: _text(found[field.name]) for field in fields(cls)})


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _offsets(found: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in found.items()}


def _without_run(record: StateRecord) -> dict[str, Any]:
    found = asdict(record)
    del found["run"]
    if found["published"] is not None:
        del found["published"]["at"]
    return found


def _unreadable(topic: str, why: str) -> StateError:
    return StateError(
        f"the state record of topic '{topic}' can't be read: {why}. Nothing was written. "
        f"Remove the record with `dbt run-operation forget_topic --args '{{topic: {topic}}}'`"
    )
