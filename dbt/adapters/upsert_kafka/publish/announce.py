"""What a run changes for the consumers of a topic, announced in one line before it is published.

Compares the layout in the state record with that of this run. Leaves to `schema_changes` which differences are refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from dbt.adapters.upsert_kafka.errors import count_of
from dbt.adapters.upsert_kafka.spark import time_zone
from dbt.adapters.upsert_kafka.state.record import Layout


@dataclass(frozen=True)
class Differences:
    """How two layouts differ, as phrases for messages."""

    format: tuple[str, ...] = ()
    """The value's format or one of its options."""
    renamed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    retyped: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any((self.format, self.renamed, self.dropped, self.retyped, self.added))

    def __str__(self) -> str:
        named = {"renamed": self.renamed, "removed": self.dropped, "of another type": self.retyped, "added": self.added}
        columns = [f"{how}: {', '.join(names)}" for how, names in named.items() if names]
        return "; ".join([*self.format, *columns])


def differences(before: Layout, now: Layout) -> Differences:
    """How `now` differs from `before` for a consumer.

    A column counts as renamed if it has the place and the type of a column that is gone.
    """
    old, new = ({name.lower(): (name, kind) for name, kind in layout.columns} for layout in (before, now))
    places = {(i, kind): name for i, (name, kind) in enumerate(now.columns) if name.lower() not in old}
    gone = {(i, kind): name for i, (name, kind) in enumerate(before.columns) if name.lower() not in new}
    renamed = {gone[place]: places[place] for place in gone if place in places}
    return Differences(
        format=_format_change(before.value, now.value),
        renamed=tuple(f"{name} (now {after})" for name, after in renamed.items()),
        dropped=tuple(name for name in gone.values() if name not in renamed),
        retyped=tuple(
            f"{new[key][0]} ({kind} to {new[key][1]})" for key, (_, kind) in old.items() if key in new and new[key][1] != kind
        ),
        added=tuple(name for name in places.values() if name not in renamed.values()),
    )


def layout_change(before: Layout | None, now: Layout, topic: str) -> str | None:
    """A warning about a changed format, or about columns that are renamed, dropped or retyped; None if there are none."""
    if before is None:
        return None
    found = differences(before, now)
    meanings = []
    if found.format:
        meanings.append("consumers that decode the old format fail on new records")
    if found.renamed or found.dropped:
        meanings.append("consumers find no value under the old names")
    if found.retyped:
        meanings.append("consumers that expect the old types may fail")
    if not meanings:
        return None
    return (
        f"the messages of topic '{topic}' change for consumers ({found}): {'; '.join(meanings)}. "
        "Set on_schema_change='fail' to refuse such changes."
    )


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
    return found if isinstance(found, dict) and {"format", "options"} <= found.keys() else None
