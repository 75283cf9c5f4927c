"""The words that plan.md and plan.html have in common: headings, numbers, and what changes mean."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator

from dbt.adapters.upsert_kafka.errors import count_of
from dbt.adapters.upsert_kafka.formats.decode import as_json
from dbt.adapters.upsert_kafka.kafka_client.topic_drift import Drift
from dbt.adapters.upsert_kafka.plan.document import CHANGES, KINDS, NOT_PLANNED, ModelPlan, Plan
from dbt.adapters.upsert_kafka.publish.preview import Sample, effect_of, granted, shown

OTHER_COUNTS = {
    "unchanged": "unchanged",
    "kept": "kept although the SELECT does not have them",
    "foreign": "of other writers, left as they are",
    "duplicate": "rows with a duplicate key",
    "null_key": "rows without a key",
    "null_value": "rows without a value",
    "conflict": "rows that differ, which update_mode='append' does not write",
}
COLUMN_CHANGES = {
    "format": ("Format", "consumers that decode the old format fail on new records"),
    "key": ("Key", "consumers find the rows under other keys"),
    "renamed": ("Renamed columns", "consumers find no value under the old names"),
    "dropped": ("Removed columns", "consumers find no value under the old names"),
    "retyped": ("Columns of another type", "consumers that expect the old types may fail"),
    "reordered": ("Columns in another order", "consumers that know columns by their place read wrong values"),
    "added": ("New columns", "consumers that read all fields get one more"),
}
DELETED = "(deleted)"


def visible(value: str) -> str:
    r"""The text in one line, with escapes for characters that can't be seen or that change the order of others.

    >>> print(visible("a\nb\u202e\u2028c\u200b"))
    a\nb\u202e\u2028c\u200b
    """
    hidden = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(c.encode("unicode_escape").decode() if unicodedata.category(c) in hidden else c for c in value)


def title(plan: Plan, quoted: Callable[[str], str] = str) -> str:
    """The heading.

    Args:
        quoted: marks a name.
    """
    return f"Plan for {quoted(plan.project)}, target {quoted(plan.target)}"


def headline(plan: Plan, quoted: Callable[[str], str] = str) -> str:
    """What the whole plan does, in a sentence.

    Args:
        quoted: marks a name.
    """
    refused = [quoted(model.name) for model in plan.models if model.refusals or model.status == "failed"]
    sent = f"{count_of(plan.messages, 'message')} to {count_of(len(plan.applied), 'topic')}"
    open_models = [quoted(model.name) for model in plan.models if model.status == NOT_PLANNED]
    later = f" Not planned: {', '.join(open_models)}." if open_models else ""
    if refused:
        return f"Refused: {', '.join(refused)}. Without them, a run would send {sent}.{later}"
    if plan.applied:
        return f"A run would send {sent}.{later}"
    if plan.of_status(CHANGES):
        return f"Nothing to send.{later}"
    return later.strip() or "Nothing to do: every topic equals its model."


def counts(model: ModelPlan) -> list[tuple[str, int]]:
    """The counts that are shown, with their words. Zeros only of the usual kinds."""
    usual = [(word, model.counts[kind]) for kind, word in KINDS.items() if kind in model.counts]
    usual = [(word, number) for word, number in usual if number or word in ("new", "changed", "deleted", "appended")]
    others = [(word, model.counts[kind]) for kind, word in OTHER_COUNTS.items() if model.counts.get(kind)]
    return usual + others


def column_changes(model: ModelPlan) -> Iterator[tuple[str, str, str]]:
    """What changed, which columns, and what this means to consumers."""
    for name, (heading, meaning) in COLUMN_CHANGES.items():
        if found := getattr(model.columns, name):
            yield heading, ", ".join(found), meaning


def drift(model: ModelPlan, change: Drift) -> str:
    """What a run does about a setting in which the topic differs."""
    return effect_of(change, model.on_configuration_change)


def marks(model: ModelPlan) -> Iterator[str]:
    """What a reader must know about the plan of this model."""
    if model.error:
        yield " ".join(model.error.split())
    if model.upstream and model.status != NOT_PLANNED:
        later = " `apply` leaves this model out; plan again after it." if model.waits else ""
        yield f"This is planned with today's {', '.join(model.upstream)}, which this plan changes too.{later}"
    if model.readers is not None:
        yield granted(model.readers)
    if model.reads is not None:
        yield f"A run would read {count_of(model.reads['offsets'], 'offset')}. `apply` does not run sources."


def fields(sample: Sample) -> list[tuple[str, str, str, bool]]:
    """The fields of a sample: name, old and new value, and whether they differ. One without a name for text."""
    old = sample.old if isinstance(sample.old, dict) else None
    new = sample.new if isinstance(sample.new, dict) else None
    is_text = (sample.old is not None and old is None) or (sample.new is not None and new is None)
    if is_text or (old is None and new is None):
        before = "" if sample.old is None else shown(sample.old)
        after = DELETED if sample.new is None else shown(sample.new)
        return [("", before, after, sample.old is not None and before != after)]
    names = {**(new or {}), **(old or {})}
    return [(name, _field(old, name), _field(new, name), name in sample.changed) for name in names]


def first(sample: Sample) -> str:
    """The message that is sent before the new one; empty if there is none."""
    return "" if sample.first is None else shown(sample.first)


def key(sample: Sample) -> str:
    return "(no key)" if sample.key is None else shown(sample.key)


def size(number: int) -> str:
    """A number of bytes for people.

    >>> size(999), size(2_500_000)
    ('999 B', '2.5 MB')
    """
    amount = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{number} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError


def number(value: int) -> str:
    """With thin groups of digits: 1 000 000."""
    return f"{value:,}".replace(",", " ")


def _field(message: dict[str, object] | None, name: str) -> str:
    if message is None or name not in message:
        return ""
    value = message[name]
    return shown(as_json(value)) if isinstance(value, bytes) else shown(value)
