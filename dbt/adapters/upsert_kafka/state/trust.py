"""Which fields of a state record still describe the live topic. A pure function; docs/state.md has its table for users.

A record outlives what it describes: the topic may be deleted and created again, truncated, copied to another cluster, or written
by somebody else. Each field is used only as far as cluster id, topic id and offsets confirm it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.state.record import Layout, Log, Owner, Published, Run, StateRecord, Stream


@dataclass(frozen=True)
class Trusted:
    """The fields of a record that may be used; None for those that may not, or that the record lacks."""

    owner: Owner | None = None
    run: Run | None = None
    created: bool = False
    layout: Layout | None = None
    published: Published | None = None
    log: Log | None = None
    stream: Stream | None = None


NOTHING = Trusted()


def trust(record: StateRecord | None, cluster_id: str, topic: Topic | None, appends: bool = False) -> Trusted:
    """The trusted fields of `record`.

    Args:
        cluster_id: of the live cluster.
        topic: as it is now, None if it does not exist.
        appends: whether the model appends events, which retention may delete. Otherwise a topic without records was emptied, and
            what was published is gone.
    """
    if record is None or topic is None or record.cluster_id != cluster_id:
        return NOTHING
    offsets_match = record.log is not None and record.log.first == dict(topic.first) and record.log.end == dict(topic.end)
    # A broker before 2.8 has no topic ids: only exact offsets tell that it is the same topic.
    has_ids = bool(topic.id) and record.topic_id is not None
    if not (record.topic_id == topic.id if has_ids else offsets_match):
        return NOTHING
    return Trusted(
        owner=record.owner,
        run=record.run,
        created=record.created,
        layout=record.layout,
        published=record.published if appends or not topic.is_empty else None,
        log=record.log if offsets_match else None,
        stream=record.stream,
    )
