"""What a run would do with a topic: the result of a run that writes nothing, and the lines that a dry run logs.

A refusal is a part of the result and does not hide the counts. Leaves to `samples` how examples are found and to `plan` how they
are written to files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.upsert_kafka.errors import GuardError, count_of
from dbt.adapters.upsert_kafka.formats import exact_json
from dbt.adapters.upsert_kafka.formats.decode import as_json
from dbt.adapters.upsert_kafka.kafka_client.topic_drift import Drift
from dbt.adapters.upsert_kafka.publish.announce import Differences

if TYPE_CHECKING:
    from dbt.adapters.upsert_kafka.publish.fingerprint import Fingerprint

logger = AdapterLogger("upsert_kafka")

NOTHING_WRITTEN = "Nothing was written; the topic is untouched."


@dataclass(frozen=True)
class Sample:
    """One change, as the messages before and after it."""

    kind: str
    """insert, update, republish, delete or append."""
    key: Any
    """Decoded: a mapping of fields, or text if the format has none; None for an event without a key."""
    old: Any = None
    new: Any = None
    changed: tuple[str, ...] = ()
    """The fields that differ."""
    first: Any = None
    """The message that is sent before `new`, if a change is two: the delete of the old row."""


@dataclass(frozen=True)
class Preview:
    """What a run of one model would do."""

    model: str
    topic: str
    owner: str
    """The model, with its project, environment and schema."""
    environment: str
    fingerprint: Fingerprint
    creates: Mapping[str, str] | None = None
    """The settings with which the topic would be created; None if it exists."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Keys, or events of a model that appends, by kind."""
    live_keys: int | None = None
    """Keys of the topic before the run."""
    refusals: tuple[str, ...] = ()
    """Why a run would be refused."""
    notes: tuple[str, ...] = ()
    """What changes for consumers, and warnings."""
    columns: Differences = field(default_factory=Differences)
    """How the messages differ from those of the last run."""
    drift: tuple[Drift, ...] = ()
    on_drift: str = "warn"
    readers: tuple[str, ...] | None = None
    """The principals that a run gives READ on the topic, and to no other; None if it changes no ACLs."""
    samples: tuple[Sample, ...] = ()

    @property
    def messages(self) -> int:
        return self.fingerprint.messages.count

    @property
    def alters(self) -> tuple[Drift, ...]:
        """The topic settings that a run would change."""
        return self.drift if self.on_drift == "apply" else ()

    @property
    def has_changes(self) -> bool:
        """Whether a run would write or change anything that consumers see."""
        return bool(self.messages or self.creates is not None or self.alters)


def log(preview: Preview) -> None:
    """The report of a dry run.

    Raises:
        GuardError: the run would be refused; comes after the counts.
    """
    for line in lines(preview):
        logger.info(f"model {preview.model}: {line}")
    if preview.refusals:
        reasons = "\n".join(f"model {preview.model}: {reason}" for reason in preview.refusals)
        raise GuardError(f"{reasons}\n{NOTHING_WRITTEN}")


def lines(preview: Preview) -> Iterator[str]:
    """The refusals, then the counts with examples, then what else changes."""
    yield from (f"would be refused: {reason}" for reason in preview.refusals)
    live = "" if preview.live_keys is None else f", {count_of(preview.live_keys, 'live key')}"
    yield f"topic '{preview.topic}', owner: {preview.owner}, environment: {preview.environment}{live}"
    if preview.creates is not None:
        yield f"would create topic '{preview.topic}'" + (f" with {_listed(preview.creates)}" if preview.creates else "")
    yield from preview.notes
    yield from (f"topic setting {change}; this {effect_of(change, preview.on_drift)}" for change in preview.drift)
    if preview.readers is not None:
        yield granted(preview.readers)
    for kind, number in preview.counts.items():
        noun = "event" if kind == "append" else "key"
        some = [sample for sample in preview.samples if sample.kind == kind]
        if number and kind in VERBS:
            yield f"would {kind} {count_of(number, noun)}" + (", for example" if some else "")
            yield from (f"  {shown(sample.key)}: {_old(sample)} -> {_new(sample)}" for sample in some)
    sent = preview.fingerprint.messages
    yield f"would send {count_of(sent.count, 'message')}, {sent.bytes} bytes"


def effect_of(change: Drift, choice: str) -> str:
    """What a run does about a setting in which the topic differs.

    Args:
        choice: on_configuration_change.
    """
    if choice == "apply" and change.problem:
        return f"is refused, because {change.problem}"
    return ON_DRIFT.get(choice, choice) + (f": {change.meaning}" if change.meaning and choice == "apply" else "")


ON_DRIFT = {
    "apply": "is changed by a run (on_configuration_change='apply')",
    "continue": "is left as it is (on_configuration_change='continue')",
    "fail": "is refused (on_configuration_change='fail')",
    "warn": "gives a warning; on_configuration_change is not set",
}
VERBS = ("insert", "update", "delete", "republish", "append")


def shown(value: Any) -> str:
    """A decoded key or value in one line."""
    return value if isinstance(value, str) else exact_json.dumps(value, as_json, compact=True)


def granted(readers: Sequence[str]) -> str:
    """What a run does with the ACLs of the topic."""
    if not readers:
        return "A run revokes READ on the topic from all that have it by an ACL of the topic (grants)."
    return f"A run gives READ on the topic to {', '.join(readers)}, and revokes it from all others (grants)."


def _old(sample: Sample) -> str:
    return "(none)" if sample.old is None else shown(sample.old)


def _new(sample: Sample) -> str:
    first = "" if sample.first is None else f"{shown(sample.first)}, then "
    return first + ("(deleted)" if sample.new is None else shown(sample.new))


def _listed(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
