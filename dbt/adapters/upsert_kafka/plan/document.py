"""The plan: what a run of some models would do. Written to plan.json, whose format docs/plan.md describes.

A program may read the file: fields are added, and are not removed or changed without another `version`. Contains no secrets and
no values of masked columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.formats import exact_json
from dbt.adapters.upsert_kafka.formats.decode import as_json
from dbt.adapters.upsert_kafka.kafka_client.topic_drift import Drift
from dbt.adapters.upsert_kafka.publish.announce import Differences
from dbt.adapters.upsert_kafka.publish.fingerprint import Fingerprint
from dbt.adapters.upsert_kafka.publish.preview import Preview, Sample
from dbt.adapters.upsert_kafka.source.source import Reading

VERSION = 1
CHANGES, NO_CHANGES, REFUSED, FAILED, NOT_PLANNED = STATUSES = ("changes", "no changes", "refused", "failed", "not planned")
KINDS = {"insert": "new", "update": "changed", "delete": "deleted", "republish": "published again", "append": "appended"}
"""The kinds of changes, with the words for people."""


@dataclass(frozen=True)
class ModelPlan:
    """What a run of one model would do."""

    unique_id: str
    name: str
    materialization: str
    status: str
    error: str = ""
    """Why the model failed, or why it is not planned."""
    topic: str = ""
    owner: str = ""
    environment: str = ""
    creates: Mapping[str, str] | None = None
    """The settings of a topic that would be created; None if the topic exists."""
    counts: Mapping[str, int] = field(default_factory=dict)
    live_keys: int | None = None
    messages: int = 0
    bytes: int = 0
    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    columns: Differences = field(default_factory=Differences)
    drift: tuple[Drift, ...] = ()
    on_configuration_change: str = "warn"
    readers: tuple[str, ...] | None = None
    """The principals that a run gives READ on the topic; None if it changes no ACLs."""
    reads: Mapping[str, Any] | None = None
    """Of a source: the offsets that a run would read, and how many."""
    upstream: tuple[str, ...] = ()
    """Models of this plan with changes that this model depends on: its plan is of what they are today."""
    waits: bool = False
    """Whether publishing the upstream models changes what this model selects. `apply` leaves it out.

    A model that can't be planned before others are published is not planned, and waits."""
    samples: tuple[Sample, ...] = ()
    fingerprint: Fingerprint = field(default_factory=Fingerprint)

    @classmethod
    def of(cls, unique_id: str, materialization: str, found: Preview) -> Self:
        """The plan of a model from its preview."""
        sent = found.fingerprint.messages
        return cls(
            unique_id=unique_id,
            name=found.model,
            materialization=materialization,
            status=REFUSED if found.refusals else CHANGES if found.has_changes else NO_CHANGES,
            topic=found.topic,
            owner=found.owner,
            environment=found.environment,
            creates=found.creates,
            counts=found.counts,
            live_keys=found.live_keys,
            messages=sent.count,
            bytes=sent.bytes,
            refusals=found.refusals,
            notes=found.notes,
            columns=found.columns,
            drift=found.drift,
            on_configuration_change=found.on_drift,
            readers=found.readers,
            samples=found.samples,
            fingerprint=found.fingerprint,
        )

    @classmethod
    def of_source(cls, unique_id: str, name: str, reading: Reading, is_new: bool) -> Self:
        """The plan of a source: the offsets that a run would pin.

        Args:
            is_new: whether they differ from those that the relation has.
        """
        reads = {"offsets": reading.offsets, "slice": reading.slice, "group": reading.group}
        return cls(
            unique_id, name, "kafka_source", CHANGES if is_new else NO_CHANGES, topic=", ".join(reading.slice), reads=reads
        )

    @property
    def is_applied(self) -> bool:
        """Whether `apply` publishes the model."""
        return self.status == CHANGES and not self.waits and self.reads is None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        known = {name: value for name, value in values.items() if name in {f.name for f in fields(cls)}}
        for name in ("refusals", "notes", "upstream"):
            known[name] = tuple(known.get(name) or ())
        if known.get("readers") is not None:
            known["readers"] = tuple(known["readers"])
        known["columns"] = Differences(**{name: tuple(texts) for name, texts in (known.get("columns") or {}).items()})
        known["drift"] = tuple(Drift(**drift) for drift in known.get("drift") or ())
        known["samples"] = tuple(
            Sample(**{**sample, "changed": tuple(sample.get("changed") or ())}) for sample in known.get("samples") or ()
        )
        known["fingerprint"] = Fingerprint.from_dict(known.get("fingerprint") or {})
        return cls(**known)


@dataclass(frozen=True)
class Invocation:
    """The flags of dbt that decide what is planned, and with which `apply` runs."""

    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    selector: str | None = None
    vars: str | None = None
    needs_vars: bool = False
    """Whether `vars` are left out, because they seem to have a secret."""
    full_refresh: bool = False
    defer: bool = False
    favor_state: bool = False
    state: str | None = None


@dataclass(frozen=True)
class Plan:
    """The plan of some models of a project, for one target."""

    project: str
    target: str
    environment: str
    created_at: str
    adapter_version: str
    invocation: Invocation = field(default_factory=Invocation)
    models: tuple[ModelPlan, ...] = ()
    version: int = VERSION

    def of_status(self, status: str) -> list[ModelPlan]:
        return [model for model in self.models if model.status == status]

    @property
    def is_refused(self) -> bool:
        """Whether a model would be refused, or could not be planned because of an error."""
        return bool(self.of_status(REFUSED) or self.of_status(FAILED))

    @property
    def applied(self) -> list[ModelPlan]:
        """The models that `apply` publishes."""
        return [model for model in self.models if model.is_applied]

    @property
    def waiting(self) -> list[ModelPlan]:
        """The models that have to be planned again after `apply`."""
        return [model for model in self.models if model.waits and model.status in (CHANGES, NOT_PLANNED)]

    @property
    def messages(self) -> int:
        """How many messages `apply` sends."""
        return sum(model.messages for model in self.applied)

    def with_samples(self, number: int) -> Plan:
        """The same plan with at most this many samples of each kind and model."""
        return replace(self, models=tuple(replace(model, samples=_first(model.samples, number)) for model in self.models))

    def to_json(self) -> str:
        summary = {status.replace(" ", "_"): len(self.of_status(status)) for status in STATUSES}
        totals = {**summary, "messages": self.messages}
        values = {"version": self.version, "complete": not self.waiting, "summary": totals, **asdict(self)}
        return exact_json.dumps(values, as_json, indent=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        values = json.loads(text)
        known = {name: value for name, value in values.items() if name in {f.name for f in fields(cls)}}
        known["models"] = tuple(ModelPlan.from_dict(model) for model in values["models"])
        invocation = values["invocation"]
        known["invocation"] = Invocation(
            **{**invocation, "select": tuple(invocation["select"]), "exclude": tuple(invocation["exclude"])}
        )
        return cls(**known)


def load(path: Path) -> Plan:
    """Read plan.json.

    Raises:
        UpsertKafkaError: the file is not a plan, or one of a later version.
    """
    try:
        values = json.loads(path.read_text())
        version = values["version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UpsertKafkaError(f"'{path}' is not a plan: {error}. Name the plan.json that upsert-kafka plan wrote.") from error
    if version != VERSION:
        raise UpsertKafkaError(
            f"'{path}' is a plan of version {version}, this dbt-upsert-kafka reads version {VERSION}. "
            "Run upsert-kafka plan again."
        )
    try:
        return checked(Plan.from_json(path.read_text()))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UpsertKafkaError(f"'{path}' is not a complete plan ({error!r}). Run upsert-kafka plan again.") from error


def checked(value: Any) -> Any:
    """A plan or a part of it, whose fields have the types that they are declared with.

    Raises:
        TypeError: names the field.
    """
    for name, hint in get_type_hints(type(value)).items():
        if not _is(getattr(value, name), hint):
            raise TypeError(f"{name} is not as plan.json has it")
    if isinstance(value, ModelPlan) and value.status not in STATUSES:
        raise ValueError(f"status {value.status!r} is unknown")
    return value


def _is(value: Any, hint: Any) -> bool:
    kind, of = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if kind is UnionType:
        return any(_is(value, one) for one in of)
    if kind is Mapping:
        return isinstance(value, Mapping) and all(_is(k, of[0]) and _is(v, of[1]) for k, v in value.items())
    if kind is tuple:
        return isinstance(value, tuple) and all(_is(one, of[0]) for one in value)
    if is_dataclass(hint):
        return isinstance(value, hint) and checked(value) is value  # type: ignore[arg-type]
    return value is None if hint is NoneType else type(value) is hint


def _first(samples: Iterable[Sample], number: int) -> tuple[Sample, ...]:
    found: list[Sample] = []
    for sample in samples:
        if sum(other.kind == sample.kind for other in found) < number:
            found.append(sample)
    return tuple(found)
