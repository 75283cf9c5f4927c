"""What a run changes for the consumers of a topic, announced in one line before it is published.

Compares the layout in the state record with that of this run. Leaves to `schema_changes` which differences are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dbt.adapters.upsert_kafka.errors import count_of
from dbt.adapters.upsert_kafka.spark import time_zone
from dbt.adapters.upsert_kafka.state.record import Layout

POSITIONAL = ("csv", "avro")
"""Formats whose messages have no column names: consumers know a column by its place."""


@dataclass(frozen=True)
class Differences:
    """How two layouts differ, as phrases for messages."""

    format: tuple[str, ...] = ()
    """The value's format or one of its options."""
    key: tuple[str, ...] = ()
    """The columns or the format of the key."""
    renamed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    retyped: tuple[str, ...] = ()
    reordered: tuple[str, ...] = ()
    """The columns in their new order, if the format has no names."""
    added: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.format, self.key, self.renamed, self.dropped, self.retyped, self.reordered, self.added))

    def __str__(self) -> str:
        named = {
            "key": self.key, "renamed": self.renamed, "removed": self.dropped, "of another type": self.retyped,
            "in another order": self.reordered, "added": self.added,
        }  # fmt: skip
        columns = [f"{how}: {', '.join(names)}" for how, names in named.items() if names]
        return "; ".join([*self.format, *columns])


def differences(before: Layout, now: Layout) -> Differences:
    """How `now` differs from `before` for a consumer: the fields of the value in their order, its format, and the key.

    A column counts as renamed if it has the place and the type of a column that is gone.
    """
    old_value, new_value = _loaded(before.value), _loaded(now.value)
    is_known = old_value is not None and new_value is not None
    # The layout of a view has columns only. Catalogs may change their case.
    old_fields = _fields(old_value) if old_value and is_known else before.columns
    new_fields = _fields(new_value) if new_value and is_known else now.columns
    old, new = ({name.lower(): (name, kind) for name, kind in fields} for fields in (old_fields, new_fields))
    places = {(i, kind): name for i, (name, kind) in enumerate(new_fields) if name.lower() not in old}
    gone = {(i, kind): name for i, (name, kind) in enumerate(old_fields) if name.lower() not in new}
    renamed = {gone[place]: places[place] for place in gone if place in places}
    recased = {name: new[key][0] for key, (name, _) in old.items() if is_known and key in new and new[key][0] != name}
    # The columns that both have, by their new names.
    after = {key: new[key][0] for key in old if key in new}
    after |= {name.lower(): other for name, other in renamed.items()}
    kept = [name for name, _ in new_fields if name in after.values()]
    is_moved = _is_positional(now) and [after[key] for key in old if key in after] != kept
    return Differences(
        format=_format_change(before.value, now.value),
        key=_key_change(before.key, now.key),
        renamed=tuple(f"{name} (now {other})" for name, other in {**renamed, **recased}.items()),
        dropped=tuple(name for name in gone.values() if name not in renamed),
        retyped=tuple(
            f"{new[key][0]} ({kind} to {new[key][1]})" for key, (_, kind) in old.items() if key in new and new[key][1] != kind
        ),
        reordered=tuple(kept) if is_moved else (),
        added=tuple(name for name in places.values() if name not in renamed.values()),
    )


def layout_change(before: Layout | None, now: Layout, topic: str) -> str | None:
    """A warning about what consumers of the topic must know; None if there is nothing.

    An added column is a surprise only in a format without column names.
    """
    if before is None:
        return None
    found = differences(before, now)
    meanings = []
    if found.format:
        meanings.append("consumers that decode the old format fail on new records")
    if found.key:
        meanings.append("consumers find the rows under other keys")
    if found.renamed or found.dropped:
        meanings.append("consumers find no value under the old names")
    if found.retyped:
        meanings.append("consumers that expect the old types may fail")
    if found.reordered or (found.added and _is_positional(now)):
        meanings.append("consumers that know columns by their place read wrong values or fail")
    if not meanings:
        return None
    return (
        f"the messages of topic '{topic}' change for consumers ({found}): {'; '.join(meanings)}. "
        "Set on_schema_change='fail' to refuse such changes."
    )


def key_change(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs between two key layouts.

    >>> key = {"format": "json", "fields": [["id", "int"]], "options": {}}
    >>> key_change(key, {**key, "fields": [["name", "string"]]})
    'from id (int) to name (string)'
    >>> key_change(key, {**key, "format": "csv"})
    'from format json to csv'
    """
    if before.get("fields") != now.get("fields"):
        return f"from {_listed(before)} to {_listed(now)}"
    if before.get("format") != now.get("format"):
        return f"from format {before.get('format')} to {now.get('format')}"
    return f"in the options of its format from {before.get('options')} to {now.get('options')}"


def time_zone_change(before: Layout | None, now: str | None, updated: int) -> str | None:
    """A warning about rows that this run publishes again because of another session time zone; None if there are none."""
    if before is None or not updated or before.time_zone == now:
        return None
    if before.time_zone is not None:
        cause, zone = f"the last run used the session time zone {before.time_zone}", before.time_zone
    else:
        # Records of earlier versions have no time zone: it was that of the machine.
        machine = time_zone.machine_zone()
        if machine is None or machine == now:
            return None
        cause, zone = f"earlier versions used the time zone of the machine ({machine} on this one)", machine
    return (
        f"{cause}, this run uses {now}. {count_of(updated, 'row', 'changes', 'change')}, among them those whose timestamps are "
        f"computed in the session time zone. Set `spark: {{{time_zone.SETTING}: {zone}}}` in the profile to keep the old values."
    )


def _key_change(before: str, now: str) -> tuple[str, ...]:
    old, new = _loaded(before), _loaded(now)
    return (key_change(old, new),) if old is not None and new is not None and old != new else ()


def _listed(layout: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in layout.get("fields", ())) or "no key"


def _is_positional(layout: Layout) -> bool:
    return (_loaded(layout.value) or {}).get("format") in POSITIONAL


def _fields(side: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((str(name), str(kind)) for name, kind in side["fields"])


def _format_change(before: str, now: str) -> tuple[str, ...]:
    old, new = _loaded(before), _loaded(now)
    if old is None or new is None:
        return ()
    if old["format"] != new["format"]:
        return (f"value format: {old['format']} to {new['format']}",)
    changed = sorted(name for name in {*old["options"], *new["options"]} if old["options"].get(name) != new["options"].get(name))
    return (f"options of value format {new['format']}: {', '.join(changed)}",) if changed else ()


def _loaded(layout: str) -> dict[str, Any] | None:
    found = json.loads(layout)
    return found if isinstance(found, dict) and {"format", "fields", "options"} <= found.keys() else None
