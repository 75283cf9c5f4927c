"""Where a stream begins: with its checkpoint, at the offsets of its state record, or from the start. Or why it must not begin.

Spark itself would silently start over if the checkpoint is lost, and continue if the SELECT or the topic is another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.formats.records import Records
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.publish.memory import Memory
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.spark import time_zone
from dbt.adapters.upsert_kafka.state import ownership
from dbt.adapters.upsert_kafka.state.record import Stream
from dbt.adapters.upsert_kafka.streaming import sources
from dbt.adapters.upsert_kafka.streaming.checkpoints import Checkpoint
from dbt.adapters.upsert_kafka.streaming.delta import DeltaTable
from dbt.adapters.upsert_kafka.streaming.sources import StreamSource

START_OVER = "To start over, run it once with --full-refresh: all events are read again, and keys that vanished are deleted."
APPEND_AGAIN = (
    "To start over, run it once with --full-refresh: all events are read again and appended to what is in the topic. Delete the "
    "topic before if they must not be in it twice."
)
# Options that change the rows or their bytes. Formats and columns are in the layout.
OPTIONS = ("unique_key", "delete_when", "sequence_by", "on_null_key", "headers", "record_timestamp", "sink_ignore_retraction")

TIME_ZONE = "session time zone"


@dataclass(frozen=True)
class Situation:
    """What decides where a stream begins."""

    request: Request
    memory: Memory
    topic: Topic | None
    sources: Sequence[StreamSource]
    definition: Mapping[str, str]
    is_stateless: bool
    checkpoint: Callable[[str], Checkpoint]
    """The checkpoint of a query."""
    has_checkpoints: Callable[[], bool]
    """Whether the topic has a checkpoint of any query."""
    tables: Sequence[DeltaTable] = ()

    @property
    def appends(self) -> bool:
        return self.request.options.appends

    @property
    def start_over(self) -> str:
        """The remedy for a stream that must not continue."""
        return APPEND_AGAIN if self.appends else START_OVER


@dataclass(frozen=True)
class Start:
    """How a stream begins."""

    stream: Stream
    is_new: bool
    """Whether the state record has to be written first, and the query has to be given its first offsets: its checkpoint has no
    batch yet."""
    former: Checkpoint | None = None
    """A checkpoint that is not needed any more."""


def definition(sql: str, texts: Mapping[str, str], layout: Records, request: Request) -> dict[str, str]:
    """Hashes of everything that the published rows depend on, by the name that messages use. The time zone is not hashed.

    Args:
        texts: the SQL, topics and watermark of each source, by its name.
    """
    return {
        "SELECT": _hash(" ".join(sql.split())),
        "columns or formats": _hash(layout.key_layout() + layout.value_layout()),
        "options": _hash(json.dumps({name: getattr(request.options, name) for name in OPTIONS}, sort_keys=True)),
        "sources": _hash(json.dumps(dict(texts), sort_keys=True)),
        TIME_ZONE: request.time_zone,
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def decide(situation: Situation) -> Start:
    """Decide where the stream begins.

    Raises:
        GuardError: it must not begin. The message has the remedy. Nothing was changed.
    """
    request, topic, stream = situation.request, situation.topic, situation.memory.trusted.stream
    has_records = topic is not None and not topic.is_empty
    is_owned = situation.memory.trusted.owner is not None
    if topic is not None and has_records and not is_owned and not situation.appends:
        raise _refused(
            situation,
            f"topic '{topic.name}' has records and no owner in the state topic. If it belongs to this model: "
            f"{ownership.adopt(request.owner)}, then run with --full-refresh",
        )
    if request.full_refresh:
        return _from_the_start(situation, stream)
    if stream is None:
        # A model that appends leaves the records of others as they are. Its own are those of events that would come again.
        if topic is not None and has_records and is_owned:
            raise _refused(situation, f"topic '{topic.name}' was not published by a stream. {situation.start_over}")
        if topic is not None and situation.appends and situation.memory.record is None and situation.has_checkpoints():
            raise _refused(
                situation,
                f"the state record of topic '{topic.name}' is lost, and its stream has a checkpoint: it has run before, and all "
                f"events would be appended again. {situation.start_over}",
            )
        return _from_the_start(situation, None)
    assert topic is not None
    changed = sorted(name for name, value in situation.definition.items() if stream.definition.get(name) != value)
    if changed:
        zone = _former_zone(stream) if TIME_ZONE in changed else ""
        raise _refused(situation, f"the {', '.join(changed)} changed since the stream began. {zone}{situation.start_over}")
    if topic.is_empty and any(topic.end.values()) and not situation.appends:
        raise _refused(situation, f"the records of topic '{topic.name}' were deleted. {situation.start_over}")
    sources.check_once(request.model, situation.sources, stream.offsets)
    for source in situation.sources:
        with source.kafka.admin() as admin:
            _check_source(situation, admin, source, stream)
    return _resume(situation, stream)


def _former_zone(stream: Stream) -> str:
    zone = stream.definition.get(TIME_ZONE)
    return f"It was {zone}; set {time_zone.SETTING} of the profile back to continue. " if zone else ""


def _resume(situation: Situation, stream: Stream) -> Start:
    checkpoint = situation.checkpoint(stream.query)
    if not checkpoint.exists:
        if stream.batch < 0:
            # The stream was killed before its first batch.
            return Start(stream, is_new=True)
        if situation.tables:
            names = ", ".join(table.name for table in situation.tables)
            raise _refused(
                situation,
                f"its checkpoint '{checkpoint.path}' is gone, and with it the position in the Delta table {names}. Restore the "
                f"folder. {situation.start_over}",
            )
        if not situation.is_stateless:
            raise _refused(
                situation,
                f"its checkpoint '{checkpoint.path}' is gone, and with it the state of its aggregates and joins. Restore the "
                f"folder. {situation.start_over}",
            )
        # A batch of a stateless stream depends on its own events only, and the record has the offsets where the next one begins.
        return Start(replace(stream, query=_new_query(), batch=-1), is_new=True)
    last = checkpoint.last_batch()
    if last not in (stream.batch, stream.batch + 1) or (last == stream.batch >= 0 and checkpoint.offsets(last) != stream.offsets):
        raise _refused(
            situation,
            f"its checkpoint '{checkpoint.path}' is at batch {last}, and the last batch in the topic is {stream.batch}: the "
            f"folder is an old copy, or another process uses it. {situation.start_over}",
        )
    # Spark creates the folder before it plans a batch. Only a batch that was planned has offsets.
    return Start(stream, is_new=last < 0)


def _from_the_start(situation: Situation, former: Stream | None) -> Start:
    topic = situation.topic
    latest = [source.model for source in situation.sources if source.options.scan_startup_mode == "latest-offset"]
    if latest and topic is not None and not topic.is_empty and not situation.appends:
        raise _refused(
            situation,
            f"the kafka_source {latest[0]} starts at the latest offset, so that --full-refresh would read nothing and delete "
            "every key. Set another scan_startup_mode.",
        )
    offsets = sources.first_offsets(situation.request.model, situation.sources)
    ids = sources.topic_ids(situation.sources, offsets)
    deletes_old = topic is not None and not topic.is_empty and not situation.appends
    refresh = dict(topic.end) if topic is not None and deletes_old else None
    stream = Stream(situation.definition, _new_query(), -1, offsets, ids, situation.is_stateless, refresh)
    return Start(stream, is_new=True, former=situation.checkpoint(former.query) if former else None)


def _new_query() -> str:
    return str(uuid4())


def _check_source(situation: Situation, admin: KafkaAdminClient, source: StreamSource, stream: Stream) -> None:
    """Refuse to continue if a source topic is another one, or lacks the events that are read next."""
    for name, partitions in sources.of_source(source, stream.offsets).items():
        topic = topics.describe(admin, name)
        if topic is None:
            raise _refused(situation, f"the source topic '{name}' does not exist any more. {situation.start_over}")
        if topic.id and stream.topics.get(name) not in (None, topic.id):
            raise _refused(situation, f"the source topic '{name}' was deleted and created again. {situation.start_over}")
        for partition, offset in partitions.items():
            first, end = topic.first.get(partition), topic.end.get(partition)
            if first is None or end is None or not first <= offset <= end:
                raise _refused(
                    situation,
                    f"the stream continues at offset {offset} of partition {partition} of the source topic '{name}', whose "
                    f"offsets are [{first}, {end}): retention has deleted events that were not read. {situation.start_over}",
                )


def _refused(situation: Situation, reason: str) -> GuardError:
    return GuardError(f"model {situation.request.model}: {reason} Nothing was written.")
