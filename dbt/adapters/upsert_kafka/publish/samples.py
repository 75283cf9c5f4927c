"""Some of the changes of a run, as the messages themselves: key, old and new value, decoded by their formats.

Reads the topic once, whatever the number of kinds. Columns of plan_mask are replaced before anything leaves this module, see
`masks`. Sizes are bounded, so that a plan stays small.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.errors import SchemaRegistryError
from dbt.adapters.upsert_kafka.formats import exact_json, records
from dbt.adapters.upsert_kafka.formats.changelog import ChangelogFormat
from dbt.adapters.upsert_kafka.formats.decode import as_json, decoder_of
from dbt.adapters.upsert_kafka.formats.records import KEY, PARTITION, VALUE, Records
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.publish.changes import Changes
from dbt.adapters.upsert_kafka.publish.kinds import KIND, Kind
from dbt.adapters.upsert_kafka.publish.masks import Mask
from dbt.adapters.upsert_kafka.publish.memory import columns_of
from dbt.adapters.upsert_kafka.publish.preview import Sample
from dbt.adapters.upsert_kafka.state.record import Layout

SHOWN = (Kind.INSERT, Kind.UPDATE, Kind.DELETE, Kind.REPUBLISH)
APPEND = "append"
OLD, NEW = "old", "new"
TOMBSTONE = "(tombstone)"
MAX_BYTES = 256 * 1024
"""Larger keys and values are not brought to the driver."""
MAX_TEXT = 300
"""Characters of one field, or of a message without fields."""
MAX_FIELDS = 60


@dataclass(frozen=True)
class Layouts:
    """How the messages of a topic are decoded: those of this run, and those that the topic has."""

    new: Records
    old: Records
    """Of the last run; that of this run if it is not known."""

    knows_old: bool = False
    """Whether every value of the topic was written with the layout `old`."""

    @classmethod
    def of(cls, new: Records, before: Layout | None, options: ModelOptions, registry: Mapping[str, Any]) -> Layouts:
        """Read the layout of the last run, whose columns and format may be others."""
        if before is None:
            return cls(new, new)
        is_whole = options.foreign_keys != "delete" and options.missing_keys != "keep"
        if before.value == new.value_layout():
            return cls(new, new, is_whole)
        try:
            described = json.loads(before.value)
            changed = replace(options, value_format=described["format"], value_format_options=described["options"])
            old = records.layout(changed, new.value.topic, columns_of(before))
            return cls(new, old.prepared_to_read(registry), is_whole)
        except (KeyError, ValueError, SchemaRegistryError):  # the key is another, or the registry no longer has the schema
            return cls(new, new)


def of_changes(changes: Changes, found: DataFrame | None, layouts: Layouts, number: int) -> tuple[Sample, ...]:
    """Up to `number` changes of each kind, in the order of their keys.

    Args:
        found: the topic's records, None for a topic without records.
    """
    kinds = [kind for kind in SHOWN if changes[kind]]
    if not number or not kinds:
        return ()
    some = [changes.frame.where(F.col(KIND) == kind).orderBy(KEY).limit(number) for kind in kinds]
    chosen = [frame.select(KIND, KEY, PARTITION, _bounded(VALUE).alias(NEW)) for frame in some]
    rows = reduce(DataFrame.unionByName, chosen).collect()
    changed = [(bytes(row[KEY]), row[PARTITION]) for row in rows if row[KIND] != Kind.INSERT]
    old = _old_values(found, changed, layouts.new) if found is not None and changed else {}
    order = {kind.value: place for place, kind in enumerate(SHOWN)}
    rows.sort(key=lambda row: (order[row[KIND]], bytes(row[KEY])))
    found_samples = []
    for row in rows:
        before, retraction = old.get(bytes(row[KEY]), (None, None))
        is_delete = row[KIND] == Kind.DELETE
        sample = _sample(row[KIND], row[KEY], before, retraction if is_delete else row[NEW], layouts)
        if retraction is not None and not is_delete:
            first = _sample(row[KIND], None, None, retraction, layouts).new
            sample = replace(sample, first=first)
        elif changes.policy.retracts and row[KIND] == Kind.UPDATE:
            sample = replace(sample, first=TOMBSTONE)
        found_samples.append(sample)
    return tuple(found_samples)


def of_events(events: DataFrame, layout: Records, number: int) -> tuple[Sample, ...]:
    """Some events of a model that appends."""
    if not number:
        return ()
    rows = events.limit(number).select(_bounded(KEY).alias(KEY), _bounded(VALUE).alias(NEW)).collect()
    return tuple(_sample(APPEND, row[KEY], None, row[NEW], Layouts(layout, layout)) for row in rows)


def _old_values(
    found: DataFrame, keys: Iterable[tuple[bytes, int]], layout: Records
) -> dict[bytes, tuple[bytes | None, bytes | None]]:
    """The last values of some keys in the partitions whose value counts, see `scan`, with one read of the topic. For CDC formats
    also the events that delete these rows."""
    wanted = found.sparkSession.createDataFrame([(bytearray(key), at) for key, at in keys], f"{KEY} binary, {PARTITION} int")
    # Not the latest timestamp: producers set timestamps, which may not be in the order of the writes.
    last = found.join(F.broadcast(wanted), [KEY, PARTITION]).groupBy(KEY).agg(F.max_by(VALUE, "offset").alias(OLD))
    form = layout.value_format
    delete = F.expr(form.retraction(layout.value, OLD)) if isinstance(form, ChangelogFormat) else F.lit(None).cast("binary")
    shown = last.select(KEY, _bounded(OLD).alias(OLD), delete.alias(NEW)).select(KEY, OLD, _bounded(NEW).alias(NEW))
    return {bytes(row[KEY]): (row[OLD], row[NEW]) for row in shown.collect()}


def _bounded(column: str) -> Any:
    too_large = F.concat(F.lit("("), F.octet_length(column).cast("string"), F.lit(" bytes)")).cast("binary")
    return F.when(F.octet_length(column) > MAX_BYTES, too_large).otherwise(F.col(column))


def _sample(kind: str, key: Any, old: Any, new: Any, layouts: Layouts) -> Sample:
    after, before = layouts.new, layouts.old
    decoded_key = None if key is None else decoder_of(after.key_format, after.key)(bytes(key))
    was = None if old is None else decoder_of(before.value_format, before.value)(bytes(old))
    now = None if new is None else decoder_of(after.value_format, after.value)(bytes(new))
    changed = _changed(was, now) if old is not None and new is not None else ()
    mask = Mask(after, before, layouts.knows_old)
    return Sample(
        kind,
        _shortened(mask.key(decoded_key, is_row=kind != Kind.DELETE)),
        _shortened(mask.old_value(was)),
        _shortened(mask.value(now)),
        changed,
    )


def _changed(old: Any, new: Any) -> tuple[str, ...]:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return ()
    missing = object()
    return tuple(name for name in {**new, **old} if _precise(old.get(name, missing)) != _precise(new.get(name, missing)))


def _precise(value: Any) -> str:
    """The value with its type: 1 and true differ, and so do 1.0 and 1."""
    return f"{type(value).__name__} {value!r}"


def _shortened(value: Any) -> Any:
    """The value as JSON has it, with long texts cut."""
    if not isinstance(value, dict):
        return value if value is None else _short(value if isinstance(value, str) else _json(value))
    shown = {str(name): _short_field(field) for name, field in list(value.items())[:MAX_FIELDS]}
    more = len(value) - len(shown)
    return {**shown, **({"…": f"{more} more fields"} if more > 0 else {})}


def _short_field(value: Any) -> Any:
    if isinstance(value, str):
        return _short(value)
    text = _json(value)
    return exact_json.loads(text) if len(text) <= MAX_TEXT else _short(text)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}… ({len(text)} characters)"


def _json(value: Any) -> str:
    return exact_json.dumps(value, as_json)
