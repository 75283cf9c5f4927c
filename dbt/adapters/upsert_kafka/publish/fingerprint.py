"""What a plan promises about one model, in a form that a later run can compare: options, SELECT, topic and messages.

Two runs with equal fingerprints write the same messages to the same topic. The digest does not contain values. Leaves to `plan`
where fingerprints are stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka import kafka_properties
from dbt.adapters.upsert_kafka.errors import without_secrets
from dbt.adapters.upsert_kafka.formats.records import HEADERS, KEY, PARTITION, TIMESTAMP, VALUE, Records
from dbt.adapters.upsert_kafka.formats.registered import HEADER_BYTES, SCHEMA_ID, RegisteredFormat
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.sinks import partitioners

SEQUENCE = "seq"
OF_PRODUCER = ("partitioner.", "interceptor.classes")
"""Properties of Java's producer that decide about partitions and messages."""


@dataclass(frozen=True)
class Messages:
    """The messages of a run, as numbers."""

    count: int = 0
    bytes: int = 0
    """Of keys and values, before compression."""
    digest: str = ""
    """Sums of two hashes of every message."""


@dataclass(frozen=True)
class Fingerprint:
    """Everything that decides which messages a run writes."""

    cluster_id: str = ""
    topic_id: str | None = None
    """None if the topic does not exist; empty with brokers before 2.8."""
    end: Mapping[str, int] = field(default_factory=dict)
    """End offsets by partition."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Topic settings that the model mentions, as they are in the cluster."""
    options: Mapping[str, str] = field(default_factory=dict)
    select: str = ""
    """Hash of the compiled SELECT."""
    layout: str = ""
    """How rows become keys and values."""
    seed: int = 0
    messages: Messages = field(default_factory=Messages)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Fingerprint:
        known = {name: value for name, value in values.items() if name in {f.name for f in fields(cls)}}
        return cls(**{**known, "messages": Messages(**known.get("messages", {}))})

    def differences(self, now: Fingerprint) -> list[str]:
        """What changed since, one phrase each, from causes to effects. Empty if a run writes the same messages."""
        return [*self.causes(now), *self._effects(now)]

    def causes(self, now: Fingerprint) -> list[str]:
        """The differences that are known before the SELECT is computed."""
        found = [
            f"option {name} was {self.options.get(name, 'not set')}, it is {now.options.get(name, 'not set')} now"
            for name in sorted({*self.options, *now.options})
            if self.options.get(name) != now.options.get(name)
        ]
        if self.select != now.select:
            found.append("the SELECT is another")
        if self.layout != now.layout:
            found.append("the columns or their types are others")
        return [*found, *self.topic_causes(now)]

    def topic_causes(self, now: Fingerprint) -> list[str]:
        """The differences of the topic alone."""
        if self.cluster_id != now.cluster_id:
            return [f"the cluster was {self.cluster_id}, it is {now.cluster_id} now"]
        if self.topic_id != now.topic_id:
            if self.topic_id is None:
                return ["the topic was created"]
            return ["the topic was deleted" if now.topic_id is None else "the topic was deleted and created again"]
        if set(self.end) != set(now.end):
            return [f"the topic had {len(self.end)} partitions, it has {len(now.end)} now"]
        moved = [partition for partition in sorted(self.end, key=int) if self.end[partition] != now.end[partition]]
        if moved:
            shown = ", ".join(f"{p} from {self.end[p]} to {now.end[p]}" for p in moved[:5])
            return [f"the topic was written to: the end offsets moved (partition {shown}{', …' if len(moved) > 5 else ''})"]
        return [
            f"topic setting {name} was {self.settings.get(name)}, it is {now.settings.get(name)} now"
            for name in sorted({*self.settings, *now.settings})
            if self.settings.get(name) != now.settings.get(name)
        ]

    def _effects(self, now: Fingerprint) -> list[str]:
        if self.messages.digest == now.messages.digest:
            return []
        if self.messages.count != now.messages.count:
            return [f"the rows are others: {self.messages.count} messages were planned, {now.messages.count} would be sent now"]
        return ["the rows are others"]


def of_topic(cluster_id: str, topic: Topic | None, request: Request) -> Fingerprint:
    """The fingerprint of the topic alone."""
    return Fingerprint(
        cluster_id=cluster_id,
        topic_id=None if topic is None else topic.id,
        end={} if topic is None else {str(partition): end for partition, end in sorted(topic.end.items())},
        settings={} if topic is None else _settings(topic, request),
    )


def before(cluster_id: str, topic: Topic | None, layout: Records, request: Request, seed: int) -> Fingerprint:
    """The fingerprint of a run that has not computed its SELECT, so without messages."""
    return replace(
        of_topic(cluster_id, topic, request),
        options=shown_options(request),
        select=hashlib.sha256(request.sql.encode()).hexdigest(),
        layout=without_secrets(f"{without_id(layout.key_layout())} {without_id(layout.value_layout())}"),
        seed=seed,
    )


def without_id(layout: str) -> str:
    """The layout of one side without the schema id, which a plan does not know if the schema is not registered yet."""
    described = json.loads(layout)
    described["options"].pop(SCHEMA_ID, None)
    return json.dumps(described, sort_keys=True)


def of_messages(messages: DataFrame, layout: Records, seed: int) -> Messages:
    """Number, size and digest of the messages to write (`key, value`, and those of `partition, seq, headers, timestamp` that
    there are)."""
    of_message = [_hash(messages, layout, seed, number).cast("decimal(38,0)") for number in (1, 2)]
    sizes = F.coalesce(F.octet_length(KEY), F.lit(0)) + F.coalesce(F.octet_length(VALUE), F.lit(0))
    [found] = messages.agg(
        F.count(F.lit(1)).alias("count"), F.sum(sizes.cast("long")).alias("bytes"), *(F.sum(h) for h in of_message)
    ).collect()
    return Messages(found["count"], found["bytes"] or 0, f"{found['count']}:{found[2] or 0}:{found[3] or 0}")


def _hash(messages: DataFrame, layout: Records, seed: int, number: int) -> Column:
    key, value = _content(layout.key_format, KEY), _content(layout.value_format, VALUE)
    others = [name for name in (PARTITION, SEQUENCE, HEADERS, TIMESTAMP) if name in messages.columns]
    # xxhash64 skips nulls, so that lengths and a number for "no value" are hashed with the bytes.
    lengths = [F.coalesce(F.octet_length(side), F.lit(-1)) for side in (key, value)]
    bytes_of = [F.coalesce(side, F.lit(b"")) for side in (key, value)]
    extra = [F.coalesce(F.col(name), F.lit(-1)) if name in (PARTITION, SEQUENCE) else F.col(name) for name in others]
    return F.xxhash64(F.lit(seed).cast("long"), F.lit(number), *lengths, F.sha2(F.concat(*bytes_of), 256), *extra)


def _content(form: Any, column: str) -> Column:
    """Without the schema id, which a plan does not know if the schema is not registered yet."""
    if isinstance(form, RegisteredFormat):
        return F.expr(f"substring({column}, {HEADER_BYTES + 1})")
    return F.col(column)


def shown_options(request: Request) -> dict[str, str]:
    """Every option of the run that is not the default, as text. Values that may be secrets are left out."""
    parsed, defaults = request.options, ModelOptions(request.options.materialization)
    found = {
        f.name: _text(getattr(parsed, f.name))
        for f in fields(ModelOptions)
        if f.name != "warnings" and getattr(parsed, f.name) != getattr(defaults, f.name)
    }
    settings = request.topic_settings
    found |= {f"topic {name}": _text(value) for name, value in asdict(settings).items() if value not in (None, {}, "")}
    found |= {"on_schema_change": request.on_schema_change, "on_configuration_change": request.on_configuration_change}
    found |= {"not_null": _text(request.not_null), "checks": _text([str(check) for check in request.checks])}
    found |= {"topic name": request.topic, "partitioner": _partitioner(request)}
    found |= {} if request.readers is None else {"grants": _text(sorted(request.readers))}
    found |= {"full_refresh": _text(request.full_refresh), "time_zone": request.time_zone, "owner": str(request.owner)}
    return {name: without_secrets(text) for name, text in sorted(found.items())}


def _partitioner(request: Request) -> str:
    """Where new keys go: the model's partitioner with a hash of its code, and the classes of Java's producer."""
    parsed = request.options
    chosen = partitioners.load(parsed.sink_partitioner, parsed.sink_partitioner_class, request.folder)
    of_java = {name: value for name, value in request.kafka.properties.items() if name.startswith(OF_PRODUCER)}
    return _text([chosen.kind, chosen.name, partitioners.code_hash(chosen), of_java])


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        value = {str(name): content for name, content in value.items() if not kafka_properties.is_secret(str(name))}
    is_container = isinstance(value, Mapping | list | tuple | bool)
    return json.dumps(value, default=str, sort_keys=True) if is_container else str(value)


def _settings(topic: Topic, request: Request) -> dict[str, str]:
    names = ["cleanup.policy", *request.topic_settings.config]
    found = {name: topic.config[name] for name in sorted(set(names)) if name in topic.config}
    return {**found, "replication_factor": str(topic.replicas)}
