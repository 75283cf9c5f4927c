"""The offsets that one run of a source covers: startup and bounded modes become [start, end) of every partition.

Promises that every model and test downstream, in any process, sees the same records. Leaves to `topics` what the cluster knows
and to `source` how the records become a relation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka import topics
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.topics import READ_COMMITTED, READ_UNCOMMITTED, Topic

Bounds = Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Slice:
    """[start, end) by topic and partition."""

    bounds: Mapping[str, Bounds]

    def reader(self) -> dict[str, str]:
        """Options that make Spark's Kafka source read exactly this; partitions that appear later stay out."""
        return {
            "assign": json.dumps({topic: sorted(partitions) for topic, partitions in self.bounds.items()}),
            "startingOffsets": self._offsets(0),
            "endingOffsets": self._offsets(1),
        }

    def ends(self) -> dict[tuple[str, int], int]:
        return {(topic, p): end for topic, partitions in self.bounds.items() for p, (_, end) in partitions.items()}

    def as_dict(self) -> dict[str, dict[str, list[int]]]:
        """For adapter_response, and back with `from_dict`."""
        return {topic: {str(p): list(b) for p, b in partitions.items()} for topic, partitions in self.bounds.items()}

    @classmethod
    def from_dict(cls, bounds: Mapping[str, Mapping[str, list[int]]]) -> Slice:
        return cls({topic: {int(p): (b[0], b[1]) for p, b in partitions.items()} for topic, partitions in bounds.items()})

    @property
    def offsets(self) -> int:
        """How many offsets it spans; compaction and transactions leave fewer records."""
        return sum(end - start for partitions in self.bounds.values() for start, end in partitions.values())

    def _offsets(self, side: int) -> str:
        return json.dumps({topic: {str(p): b[side] for p, b in partitions.items()} for topic, partitions in self.bounds.items()})


def resolve(admin: KafkaAdminClient, model: str, options: ModelOptions) -> Slice:
    """Look up what the modes of `options` mean now.

    Raises:
        UpsertKafkaError: a topic that is not there, or offsets that the topic does not have, all of them at once.
    """
    uncommitted = options.properties.get("isolation.level") == "read_uncommitted"
    found = {
        name: topics.describe(admin, name, READ_UNCOMMITTED if uncommitted else READ_COMMITTED)
        for name in _names(admin, model, options)
    }
    missing = sorted(name for name, topic in found.items() if topic is None)
    if missing:
        raise UpsertKafkaError(f"{model}: {_topics(missing)} not exist; create it, or correct the option topic")
    bounds, problems = {}, []
    for name, topic in found.items():
        assert topic is not None
        topics.check_rights(topic, "READ")
        bounds[name], wrong = bounds_of(topic, options, _Lookup(admin, topic))
        problems += wrong
    if problems:
        raise UpsertKafkaError("\n".join(f"{model}: {problem}" for problem in problems))
    return Slice(bounds)


@dataclass(frozen=True)
class _Lookup:
    """What only the cluster can answer about one topic."""

    admin: KafkaAdminClient
    topic: Topic

    def offsets_at(self, millis: int) -> Mapping[int, int]:
        return topics.offsets_at(self.admin, self.topic, millis)

    def committed(self, group: str) -> Mapping[int, int]:
        return topics.committed(self.admin, group, self.topic)


def bounds_of(topic: Topic, options: ModelOptions, lookup: _Lookup) -> tuple[dict[int, tuple[int, int]], list[str]]:
    """[start, end) of each partition, and what is wrong with what was asked for."""
    problems: list[str] = []
    starts = _starts(topic, options, lookup, problems)
    ends = _ends(topic, options, lookup, problems)
    return {p: (starts[p], max(starts[p], ends[p])) for p in sorted(topic.end)}, problems


def _starts(topic: Topic, options: ModelOptions, lookup: _Lookup, problems: list[str]) -> Mapping[int, int]:
    mode = options.scan_startup_mode
    if mode == "latest-offset":
        return topic.end
    if mode == "timestamp":
        return lookup.offsets_at(options.scan_startup_timestamp_millis or 0)
    if mode == "specific-offsets":
        asked = options.scan_startup_specific_offsets
        _check_partitions(topic, "scan_startup_specific_offsets", asked, problems)
        return _in_range(topic, {**topic.first, **asked}, "scan_startup_specific_offsets asks for", options, problems)
    if mode == "group-offsets":
        group = options.properties["group.id"]
        known = lookup.committed(group)
        reset = {"earliest": topic.first, "latest": topic.end}.get(options.properties.get("auto.offset.reset", ""))
        unknown = sorted(topic.end.keys() - known.keys())
        if unknown and reset is None:
            problems.append(
                f"group '{group}' has committed no offset of topic '{topic.name}', {_partitions(unknown)}; "
                "set auto.offset.reset in properties to earliest or latest"
            )
        return _in_range(topic, {**(reset or topic.first), **known}, f"group '{group}' has committed", options, problems)
    return topic.first


def _ends(topic: Topic, options: ModelOptions, lookup: _Lookup, problems: list[str]) -> Mapping[int, int]:
    mode = options.scan_bounded_mode
    if mode == "timestamp":
        return lookup.offsets_at(options.scan_bounded_timestamp_millis or 0)
    if mode == "specific-offsets":
        asked = options.scan_bounded_specific_offsets
        _check_partitions(topic, "scan_bounded_specific_offsets", asked, problems)
        return _not_beyond(topic, asked, "scan_bounded_specific_offsets asks for", problems)
    if mode == "group-offsets":
        group = options.properties["group.id"]
        known = lookup.committed(group)
        unknown = sorted(topic.end.keys() - known.keys())
        if unknown:
            problems.append(
                f"scan_bounded_mode=group-offsets: group '{group}' has committed no offset of topic '{topic.name}', "
                f"{_partitions(unknown)}"
            )
        return _not_beyond(topic, known, f"group '{group}' has committed", problems)
    return topic.end


def _in_range(topic: Topic, starts: dict[int, int], who: str, options: ModelOptions, problems: list[str]) -> dict[int, int]:
    """Offsets that the partition has, or what `on_offset_out_of_range` says."""
    for p, start in starts.items():
        if p in topic.end and not topic.first[p] <= start <= topic.end[p]:
            if options.on_offset_out_of_range != "earliest":
                why = "are expired" if start < topic.first[p] else "do not exist"
                problems.append(
                    f"topic '{topic.name}', partition {p}: {who} offset {start}, and the partition has "
                    f"[{topic.first[p]}, {topic.end[p]}), so records {why}; "
                    "set on_offset_out_of_range='earliest' to start at what is there, or another startup mode"
                )
            starts[p] = topic.first[p]
    return starts


def _not_beyond(topic: Topic, asked: Mapping[int, int], who: str, problems: list[str]) -> dict[int, int]:
    problems += [
        f"topic '{topic.name}', partition {p}: {who} offset {end}, and the partition ends at {topic.end[p]}; "
        "a run can't wait for records to come"
        for p, end in asked.items()
        if p in topic.end and end > topic.end[p]
    ]
    return {**topic.end, **asked}


def _check_partitions(topic: Topic, option: str, asked: Mapping[int, int], problems: list[str]) -> None:
    unknown = sorted(asked.keys() - topic.end.keys())
    if unknown:
        problems.append(f"{option} names {_partitions(unknown)}, and topic '{topic.name}' has 0 to {topic.partitions - 1}")


def _names(admin: KafkaAdminClient, model: str, options: ModelOptions) -> list[str]:
    if options.topic_pattern is None:
        return list(options.topics)
    # Java's named groups are the one common difference to Python's syntax.
    matches: Callable[[str], object] = re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", options.topic_pattern)).fullmatch
    found = [name for name in topics.names(admin) if matches(name)]
    if not found:
        raise UpsertKafkaError(f"{model}: topic_pattern='{options.topic_pattern}' matches no topic of the cluster")
    return found


def _topics(names: list[str]) -> str:
    listed = ", ".join(f"'{name}'" for name in names)
    return f"topic {listed} does" if len(names) == 1 else f"topics {listed} do"


def _partitions(numbers: list[int]) -> str:
    return ("partition " if len(numbers) == 1 else "partitions ") + ", ".join(map(str, numbers))
