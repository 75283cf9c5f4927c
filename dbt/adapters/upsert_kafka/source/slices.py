"""The offsets that one run of a source reads: startup and bounded modes are resolved to [start, end) of every partition.

Every model and test downstream, in any process, then reads the same records. Leaves requests to the cluster to `kafka_client` and
the relation to `source`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka import KafkaAdminClient, OffsetAndMetadata

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import groups, topics
from dbt.adapters.upsert_kafka.kafka_client.topics import READ_COMMITTED, READ_UNCOMMITTED, Topic
from dbt.adapters.upsert_kafka.options import ModelOptions

Bounds = Mapping[int, tuple[int, int]]
Offsets = Mapping[tuple[str, int], int]
"""By topic and partition."""


@dataclass(frozen=True)
class Slice:
    """The offsets [start, end) to read, by topic and partition."""

    bounds: Mapping[str, Bounds]
    committed: Offsets = field(default_factory=dict, compare=False)
    """The offsets that the consumer group had committed when the slice was resolved. Only with startup mode group-offsets."""

    def reader(self) -> dict[str, str]:
        """Options of Spark's Kafka source that read exactly these offsets. Partitions that are added later are not read."""
        return {
            "assign": json.dumps({topic: sorted(partitions) for topic, partitions in self.bounds.items()}),
            "startingOffsets": self._offsets(0),
            "endingOffsets": self._offsets(1),
        }

    def ends(self) -> Offsets:
        """The end offset by topic and partition: what a consumer group commits."""
        return {(topic, p): end for topic, partitions in self.bounds.items() for p, (_, end) in partitions.items()}

    def as_dict(self) -> dict[str, dict[str, list[int]]]:
        """The slice in the form of dbt's adapter_response. The inverse of `from_dict`."""
        return {topic: {str(p): list(b) for p, b in partitions.items()} for topic, partitions in self.bounds.items()}

    def committed_as_dict(self) -> dict[str, dict[str, int]]:
        """`committed` in the form of dbt's adapter_response."""
        found: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.committed.items()):
            found.setdefault(topic, {})[str(partition)] = offset
        return found

    @classmethod
    def from_dict(
        cls, bounds: Mapping[str, Mapping[str, list[int]]], committed: Mapping[str, Mapping[str, int]] | None = None
    ) -> Slice:
        """The inverse of `as_dict` and `committed_as_dict`."""
        return cls(
            {topic: {int(p): (b[0], b[1]) for p, b in partitions.items()} for topic, partitions in bounds.items()},
            {(topic, int(p)): offset for topic, partitions in (committed or {}).items() for p, offset in partitions.items()},
        )

    @property
    def offsets(self) -> int:
        """The number of offsets. There are fewer records, if the topic is compacted or has transactions."""
        return sum(end - start for partitions in self.bounds.values() for start, end in partitions.values())

    def _offsets(self, side: int) -> str:
        return json.dumps({topic: {str(p): b[side] for p, b in partitions.items()} for topic, partitions in self.bounds.items()})


def resolve(
    admin: KafkaAdminClient, model: str, options: ModelOptions, check_group: Callable[[str], str | None] = lambda _: None
) -> Slice:
    """Resolve the startup and bounded modes of `options` to offsets.

    Args:
        check_group: returns the problem with an offset of the group that has this metadata, or None.

    Raises:
        UpsertKafkaError: lists every topic that does not exist, or every offset that is out of range.
    """
    uncommitted = options.properties.get("isolation.level") == "read_uncommitted"
    found = {
        name: topics.describe(admin, name, READ_UNCOMMITTED if uncommitted else READ_COMMITTED)
        for name in _names(admin, model, options)
    }
    missing = sorted(name for name, topic in found.items() if topic is None)
    if missing:
        raise UpsertKafkaError(f"{model}: {_topics(missing)} not exist. Create it, or correct the option topic.")
    bounds: dict[str, Bounds] = {}
    committed: dict[tuple[str, int], int] = {}
    problems: list[str] = []
    for name, topic in found.items():
        assert topic is not None
        topics.check_rights(topic, "READ")
        resolver = _Resolver(admin, topic, options, check_group)
        bounds[name] = resolver.bounds()
        committed |= {(name, partition): offset for partition, offset in resolver.committed.items()}
        problems += resolver.problems
    if problems:
        raise UpsertKafkaError("\n".join(f"{model}: {problem}" for problem in problems))
    return Slice(bounds, committed)


class _Resolver:
    """Resolves the modes for one topic and collects the problems."""

    def __init__(
        self, admin: KafkaAdminClient, topic: Topic, options: ModelOptions, check_group: Callable[[str], str | None]
    ) -> None:
        self.admin, self.topic, self.options, self.check_group = admin, topic, options, check_group
        self.committed: Mapping[int, int] = {}
        """The group's offsets, if reading starts at them."""
        self.problems: list[str] = []

    def bounds(self) -> Bounds:
        """[start, end) of each partition. An end before the start gives an empty range."""
        starts, ends = self._starts(), self._ends()
        return {p: (starts[p], max(starts[p], ends[p])) for p in sorted(self.topic.end)}

    def _starts(self) -> Mapping[int, int]:
        topic, options = self.topic, self.options
        match options.scan_startup_mode:
            case "latest-offset":
                return topic.end
            case "timestamp":
                return topics.offsets_at(self.admin, topic, options.scan_startup_timestamp_millis or 0)
            case "specific-offsets":
                asked = options.scan_startup_specific_offsets
                self._check_partitions("scan_startup_specific_offsets", asked)
                return self._in_range({**topic.first, **asked}, "scan_startup_specific_offsets has")
            case "group-offsets":
                return self._group_starts(options.properties["group.id"])
            case _:
                return topic.first

    def _group_starts(self, group: str) -> Mapping[int, int]:
        topic = self.topic
        found = self._committed(group)
        self.problems += sorted({problem for at in found.values() if (problem := self.check_group(at.metadata or ""))})
        committed = self.committed = {partition: at.offset for partition, at in found.items()}
        reset = {"earliest": topic.first, "latest": topic.end}.get(self.options.properties.get("auto.offset.reset", ""))
        without = sorted(topic.end.keys() - committed.keys())
        if without and reset is None:
            self.problems.append(
                f"group '{group}' has no committed offset for topic '{topic.name}', {_partitions(without)}. "
                "Set auto.offset.reset in properties to earliest or latest."
            )
        return self._in_range({**(reset or topic.first), **committed}, f"group '{group}' has committed")

    def _committed(self, group: str) -> Mapping[int, OffsetAndMetadata]:
        """The group's offsets by partition, without partitions that have none."""
        found = groups.committed(self.admin, group, [(self.topic.name, partition) for partition in self.topic.end])
        return {partition: at for (_, partition), at in found.items()}

    def _ends(self) -> Mapping[int, int]:
        topic, options = self.topic, self.options
        match options.scan_bounded_mode:
            case "timestamp":
                return topics.offsets_at(self.admin, topic, options.scan_bounded_timestamp_millis or 0)
            case "specific-offsets":
                asked = options.scan_bounded_specific_offsets
                self._check_partitions("scan_bounded_specific_offsets", asked)
                return self._not_beyond_end(asked, "scan_bounded_specific_offsets has")
            case "group-offsets":
                return self._group_ends(options.properties["group.id"])
            case _:
                return topic.end

    def _group_ends(self, group: str) -> Mapping[int, int]:
        committed = {partition: at.offset for partition, at in self._committed(group).items()}
        without = sorted(self.topic.end.keys() - committed.keys())
        if without:
            self.problems.append(
                f"scan_bounded_mode=group-offsets: group '{group}' has no committed offset for topic '{self.topic.name}', "
                f"{_partitions(without)}. Use another bounded mode."
            )
        return self._not_beyond_end(committed, f"group '{group}' has committed")

    def _in_range(self, starts: dict[int, int], who: str) -> dict[int, int]:
        """The start offsets. One that is out of range is replaced by the earliest offset, or is a problem."""
        topic = self.topic
        for p, start in starts.items():
            if p in topic.end and not topic.first[p] <= start <= topic.end[p]:
                if self.options.on_offset_out_of_range != "earliest":
                    why = "has expired" if start < topic.first[p] else "does not exist yet"
                    self.problems.append(
                        f"topic '{topic.name}', partition {p}: {who} offset {start}, which {why}: the offsets are "
                        f"[{topic.first[p]}, {topic.end[p]}). "
                        "Set on_offset_out_of_range='earliest' to start at the earliest offset, or use another startup mode."
                    )
                starts[p] = topic.first[p]
        return starts

    def _not_beyond_end(self, asked: Mapping[int, int], who: str) -> dict[int, int]:
        """The end offsets. One beyond the end of the partition is a problem, because a run does not wait for new records."""
        topic = self.topic
        self.problems += [
            f"topic '{topic.name}', partition {p}: {who} offset {end}, but the partition ends at {topic.end[p]}. "
            "Use an offset that exists; a run does not wait for new records."
            for p, end in asked.items()
            if p in topic.end and end > topic.end[p]
        ]
        return {**topic.end, **asked}

    def _check_partitions(self, option: str, asked: Mapping[int, int]) -> None:
        unknown = sorted(asked.keys() - self.topic.end.keys())
        if unknown:
            self.problems.append(
                f"{option} contains {_partitions(unknown)}, but topic '{self.topic.name}' has partitions 0 to "
                f"{self.topic.partitions - 1}"
            )


def covers(options: ModelOptions, topic: str) -> bool:
    """Whether a source reads a topic of this name, if it exists."""
    if options.topic_pattern is None:
        return topic in options.topics
    # Named groups are the one frequent difference between Java's and Python's syntax.
    return re.fullmatch(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", options.topic_pattern), topic) is not None


def _names(admin: KafkaAdminClient, model: str, options: ModelOptions) -> list[str]:
    if options.topic_pattern is None:
        return list(options.topics)
    found = [name for name in topics.names(admin) if covers(options, name)]
    if not found:
        raise UpsertKafkaError(f"{model}: topic_pattern='{options.topic_pattern}' matches no topic of the cluster")
    return found


def _topics(names: list[str]) -> str:
    listed = ", ".join(f"'{name}'" for name in names)
    return f"topic {listed} does" if len(names) == 1 else f"topics {listed} do"


def _partitions(numbers: list[int]) -> str:
    return ("partition " if len(numbers) == 1 else "partitions ") + ", ".join(map(str, numbers))
