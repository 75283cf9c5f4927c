"""The committed records of a topic, in the order of time as far as partitions allow."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import UnsupportedCodecError

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.formats.decode import Decoder, as_json, shown
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings


@dataclass(frozen=True)
class Selection:
    """Which records are shown."""

    start: Mapping[int, int] = field(default_factory=dict)
    """First offsets by partition; others begin at the first record."""
    partition: int | None = None
    key: str | None = None
    limit: int | None = 100
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
            "tombstone": self.is_tombstone, "headers": dict(self.headers),
        }  # fmt: skip


class Reader:
    """Reads one topic. `next_offsets` is known after all records were read."""

    def __init__(self, kafka: KafkaSettings, topic: str, decoders: tuple[Decoder, Decoder]) -> None:
        self._topic, self._decoders = topic, decoders
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
        partitions = self._partitions(selection.partition)
        self._consumer.assign(partitions)
        ends: dict[TopicPartition, int] = self._consumer.end_offsets(partitions)
        first: dict[TopicPartition, int] = self._consumer.beginning_offsets(partitions)
        for partition in partitions:
            start = max(selection.start.get(partition.partition, 0), first[partition])
            if selection.tail is not None and selection.key is None:
                # Transaction markers have offsets too: read some more, and keep the last ones.
                start = max(start, ends[partition] - 2 * selection.tail - 10)
            self._consumer.seek(partition, start)
        found = self._until(ends, selection)
        if selection.tail is not None:
            found = iter(sorted(found, key=lambda record: (record.millis, record.partition, record.offset))[-selection.tail :])
        shown_until = {partition.partition: self._consumer.position(partition) for partition in partitions}
        limit = None if selection.follows else selection.limit
        for number, record in enumerate(found, 1):
            yield record
            shown_until[record.partition] = record.offset + 1
            if number == limit:
                self.next_offsets, self.is_cut = shown_until, selection.tail is None
                return
        self.next_offsets = {p.partition: self._consumer.position(p) for p in partitions}
        while selection.follows:
            for record in self._polled(selection):
                yield record

    def _partitions(self, wanted: int | None) -> list[TopicPartition]:
        numbers = sorted(self._consumer.partitions_for_topic(self._topic) or ())
        if not numbers:
            topics = sorted(name for name in self._consumer.topics() if not name.startswith("__"))
            raise UpsertKafkaError(f"There is no topic '{self._topic}'. Topics: {', '.join(topics) or 'none'}")
        if wanted is not None and wanted not in numbers:
            raise UpsertKafkaError(f"Topic '{self._topic}' has no partition {wanted}; it has the partitions 0 to {numbers[-1]}")
        return [TopicPartition(self._topic, number) for number in numbers if wanted in (None, number)]

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
