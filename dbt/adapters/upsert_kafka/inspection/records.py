"""The committed records of a topic, in the order of time as far as partitions allow."""

from __future__ import annotations

import datetime as dt
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import UnsupportedCodecError

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.formats.decode import Decoder, as_json, shown
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.options.dialects import nearest


@dataclass(frozen=True)
class Selection:
    """Which records are shown."""

    start: Mapping[int, int] = field(default_factory=dict)
    """First offsets by partition; others begin at the first record."""
    partition: int | None = None
    key: str | None = None
    limit: int | None = None
    tail: int | None = None
    """The last records only, this many."""
    follows: bool = False
    """Whether to wait for new records."""


@dataclass(frozen=True)
class Shown:
    """One decoded record."""

    partition: int
    offset: int
    millis: int
    key: Any
    value: Any
    texts: tuple[str | None, str | None]
    """Key and value in one line, as the message has them."""
    headers: tuple[tuple[str, str], ...]

    @property
    def is_tombstone(self) -> bool:
        return self.texts[1] is None

    @property
    def time(self) -> str:
        return dt.datetime.fromtimestamp(self.millis / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")

    def as_json(self) -> dict[str, Any]:
        """For `-o json`."""
        return {
            "partition": self.partition, "offset": self.offset, "time": self.time + "Z", "key": self.key, "value": self.value,
            "tombstone": self.is_tombstone, "headers": self._headers(),
        }  # fmt: skip

    def _headers(self) -> dict[str, str | list[str]]:
        """The headers by name; a name that the record has several times has a list."""
        found: dict[str, list[str]] = {}
        for name, text in self.headers:
            found.setdefault(name, []).append(text)
        return {name: texts[0] if len(texts) == 1 else texts for name, texts in found.items()}


class Reader:
    """Reads one topic. `next_offsets` is known after all records were read."""

    def __init__(
        self, kafka: KafkaSettings, topic: str, decoders: tuple[Decoder, Decoder], models: Sequence[str] | None = None
    ) -> None:
        """
        Args:
            models: of the project; None without a project.
        """
        self._topic, self._decoders, self._models = topic, decoders, models
        # The admin client reports an address or a login that does not work.
        with kafka.admin():
            self._consumer = KafkaConsumer(
                **kafka.python_client(),
                group_id=None,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                allow_auto_create_topics=False,
            )
        self.next_offsets: dict[int, int] = {}
        self.is_cut = False
        """Whether the limit left out records."""

    def close(self) -> None:
        self._consumer.close()

    def read(self, selection: Selection) -> Iterator[Shown]:
        """The records of the selection."""
        partitions = self._partitions(selection)
        self._consumer.assign(partitions)
        ends: dict[TopicPartition, int] = self._consumer.end_offsets(partitions)
        first: dict[TopicPartition, int] = self._consumer.beginning_offsets(partitions)
        # A position after the end would be reset to the first record.
        starts = {p: min(max(selection.start.get(p.partition, 0), first[p]), ends[p]) for p in partitions}
        if selection.tail is not None:
            yield from self._last(selection.tail, starts, ends, selection)
            starts = ends
        self._seek(starts)
        shown_until = {p.partition: start for p, start in starts.items()}
        found = self._polled_forever(selection) if selection.follows else self._until(ends, selection)
        for number, record in enumerate(found, 1):
            yield record
            shown_until[record.partition] = record.offset + 1
            if number == selection.limit:
                self.next_offsets = shown_until
                self.is_cut = not selection.follows and next(found, None) is not None
                return
        self.next_offsets = {p.partition: self._consumer.position(p) for p in partitions}

    def _last(
        self, count: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], selection: Selection
    ) -> list[Shown]:
        """The last records, in the order of time.

        Reads backwards in windows that grow: markers of transactions, aborted records and compacted ones have offsets too.
        """
        found: dict[TopicPartition, list[Shown]] = {partition: [] for partition in ends}
        until, size = dict(ends), 2 * count + 10
        while until:
            begins = {partition: max(starts[partition], end - size) for partition, end in until.items()}
            self._seek(begins)
            window: dict[TopicPartition, deque[Shown]] = {partition: deque(maxlen=count) for partition in until}
            for record in self._until(until, selection):
                partition = TopicPartition(self._topic, record.partition)
                if record.offset < until[partition]:
                    window[partition].append(record)
            for partition, records in window.items():
                found[partition] = [*records, *found[partition]][-count:]
            until = {p: begin for p, begin in begins.items() if begin > starts[p] and len(found[p]) < count}
            size *= 4
        every = [record for records in found.values() for record in records]
        return sorted(every, key=lambda record: (record.millis, record.partition, record.offset))[-count:]

    def _seek(self, positions: Mapping[TopicPartition, int]) -> None:
        self._consumer.assign(list(positions))
        for partition, offset in positions.items():
            self._consumer.seek(partition, offset)

    def _partitions(self, selection: Selection) -> list[TopicPartition]:
        numbers = sorted(self._consumer.partitions_for_topic(self._topic) or ())
        if not numbers:
            topics = sorted(name for name in self._consumer.topics() if not name.startswith("__"))
            near = nearest(self._topic, [*(self._models or ()), *topics])
            no_model = "" if self._models is None else " and no model of this name that publishes"
            hint = f". Did you mean '{near}'?" if near else "."
            raise UpsertKafkaError(f"There is no topic '{self._topic}'{no_model}{hint} Topics: {', '.join(topics) or 'none'}")
        for wanted in (*selection.start, *([] if selection.partition is None else [selection.partition])):
            if wanted not in numbers:
                raise UpsertKafkaError(
                    f"Topic '{self._topic}' has no partition {wanted}; it has the partitions 0 to {numbers[-1]}"
                )
        return [TopicPartition(self._topic, number) for number in numbers if selection.partition in (None, number)]

    def _polled_forever(self, selection: Selection) -> Iterator[Shown]:
        while True:
            yield from self._polled(selection)

    def _until(self, ends: Mapping[TopicPartition, int], selection: Selection) -> Iterator[Shown]:
        idle_since = time.monotonic()
        while any(self._consumer.position(partition) < end for partition, end in ends.items()):
            found = list(self._polled(selection))
            yield from found
            if found:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > 10:
                # An open transaction holds back the rest.
                return

    def _polled(self, selection: Selection) -> Iterator[Shown]:
        key_of, value_of = self._decoders
        try:
            polled = self._consumer.poll(timeout_ms=500)
        except UnsupportedCodecError as error:
            raise UpsertKafkaError(f"Topic '{self._topic}' cannot be read: {error}") from error
        for batch in polled.values():
            for record in batch:
                key, key_text = key_of(record.key), None if record.key is None else key_of.text(record.key)
                if selection.key is not None and selection.key not in (key_text, shown(key), *_members(key)):
                    continue
                headers = tuple((name, Decoder()(value) or "") for name, value in record.headers)
                texts = key_text, None if record.value is None else value_of.text(record.value)
                yield Shown(record.partition, record.offset, record.timestamp, key, value_of(record.value), texts, headers)


def _members(key: Any) -> list[str]:
    """The texts by which a key can be found: its only field's value, so that `--key 7` finds {"id": 7}."""
    if isinstance(key, dict) and len(key) == 1:
        [value] = key.values()
        return [value if isinstance(value, str) else str(as_json(value) if isinstance(value, bytes) else value)]
    return []
