"""Step remember: what a run knows from the topic's state record, and the record that it leaves for the next run.

Leaves the format to `state.record`, which fields still count to `state.trust`, reading and writing to `state.store`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka import KafkaAdminClient
from pyspark.sql.types import StructType

from dbt.adapters.upsert_kafka.dbt_warnings import warn, warn_after_write
from dbt.adapters.upsert_kafka.errors import StateError, TopicMovedError
from dbt.adapters.upsert_kafka.formats.records import Records
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.options import ModelOptions
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.sinks import Delivery, StateWrite, TransactionPlan
from dbt.adapters.upsert_kafka.sql import quote_identifier, type_text
from dbt.adapters.upsert_kafka.state import lease, ownership
from dbt.adapters.upsert_kafka.state.record import Layout, Log, Published, StateRecord, Stream, View, now_text
from dbt.adapters.upsert_kafka.state.store import Access, StateSettings, StateStore, store_of
from dbt.adapters.upsert_kafka.state.trust import NOTHING, Trusted, trust


@dataclass(frozen=True)
class Result:
    """What a run did with the topic, as far as the next run needs it."""

    topic: Topic
    """As the run compared with it."""
    layout: Records
    delivery: Delivery | None = None
    """None if there was nothing to write."""
    live_keys: int | None = None
    """After the run, if known."""
    digest: str | None = None
    """Of the rows, if the topic consists of exactly the rows now."""
    seed: int | None = None
    """Of the digest."""


@dataclass(frozen=True)
class Memory:
    """The state of one topic during one run."""

    admin: KafkaAdminClient
    request: Request
    store: StateStore
    access: Access
    record: StateRecord | None
    """As it was read, or as this run claimed the topic."""
    trusted: Trusted

    @property
    def remembers(self) -> bool:
        """Whether this run leaves a record."""
        return self.access is Access.FULL

    def recreated(self, topic: Topic | None) -> str | None:
        """A warning that the topic is not the one that the last run published to; None if it is, or if there was none.

        Args:
            topic: as it is now, None if it does not exist.
        """
        record = self.record
        known = record is not None and record.published is not None and record.topic_id is not None
        if record is None or not known or record.cluster_id != self.store.cluster_id(self.admin):
            return None
        if topic is not None and (not topic.id or topic.id == record.topic_id):
            return None
        how = "was deleted" if topic is None else "was deleted and created again"
        return f"topic '{record.topic}' {how} since the last run ({record.run}). All rows are published to it."

    @property
    def cluster_id(self) -> str:
        return self.store.cluster_id(self.admin)

    def check_owner(self) -> None:
        """Refuse a topic that another model owns.

        Raises:
            GuardError: names the owner.
        """
        ownership.check_owner(self.request.owner, self.request.topic, self.trusted)

    def check_changes(self, changed: int, deleted: int) -> None:
        """Refuse to change or delete keys that this model is not known to own.

        Raises:
            GuardError: with the counts.
        """
        if self.access is Access.NONE:
            ownership.check_unreadable(self.request.owner, self.store.topic, changed, deleted)
        elif self.access is not Access.OFF:
            ownership.check_unowned(self.request.owner, self.request.topic, self.trusted, changed, deleted)

    def prepared(self) -> Memory:
        """Create the state topic if there is none. Comes before the model's topic is created, so that warnings come first too."""
        access = self.store.prepare(self.admin) if self.access is Access.FULL else self.access
        if access in (Access.NONE, Access.READ_ONLY):
            warn(
                f"model {self.request.model}: this user may not write to the state topic '{self.store.topic}', so the next run "
                "does not know what this one published. Grant WRITE and CREATE on it"
            )
        elif access is Access.FULL and self.trusted.owner != self.request.owner:
            warn(*self._former_topics())
        return replace(self, access=access)

    def claim(self, topic: Topic, is_created: bool) -> Memory:
        """Become the owner before the first data record is written: a first load that is killed is known to be of this model."""
        claimed = self.claimed(topic, is_created)
        if claimed is not self and claimed.record is not None:
            self.store.put(claimed.record)
        return claimed

    def claimed(self, topic: Topic, is_created: bool) -> Memory:
        """As the owner, with the record that `claim` writes."""
        if self.access is not Access.FULL or self.trusted.owner == self.request.owner:
            return self
        claim = self._new_record(topic, is_created)
        return replace(self, record=claim, trusted=Trusted(claim.owner, claim.run, claim.created))

    def in_transaction(self, result: Result) -> TransactionPlan:
        """What the transaction of an exactly-once run checks before its first record, and the closing record that it contains.

        Args:
            result: without the delivery, which is not complete yet.
        """

        def message(delivery: Delivery) -> tuple[bytes, bytes]:
            record = self._closing(result, confirmed_log(self.admin, replace(result, delivery=delivery)))
            return record.topic.encode(), record.encode()

        state = StateWrite(self.store.topic, message) if self.remembers else None
        return TransactionPlan(lambda: self.check_unmoved(result.topic), state)

    def check_unmoved(self, topic: Topic) -> None:
        """Check that nobody has published to the topic or claimed it since this run read it.

        The high watermark counts: it moves with every record, also of a transaction that is open or aborted.

        Args:
            topic: as this run compared with it. Without `written` the run does not depend on what the topic contains.

        Raises:
            TopicMovedError: with the other run, if its state record shows which one it is.
        """
        depends = bool(topic.written)
        newest = self.store.get(self.admin, topic.name) if self._is_readable else None
        if newest is None and self._is_readable and self.record is not None:
            raise TopicMovedError(topic.name, "lost its state record")
        is_other = newest is not None and (self.record is None or newest.encode() != self.record.encode())
        if newest is not None and is_other and (depends or newest.owner != self.request.owner):
            raise TopicMovedError(topic.name, f"was published or claimed by another run ({newest.run})")
        if moved := topics.moved_partitions(self.admin, topic):
            raise TopicMovedError(topic.name, f"was written to by another producer (partitions {', '.join(map(str, moved))})")

    @property
    def _is_readable(self) -> bool:
        return self.access in (Access.FULL, Access.READ_ONLY)

    def close(self, result: Result) -> Log | None:
        """Write the closing record, unless the transaction contained it.

        Returns:
            Where the topic ends after the run, see `confirmed_log`.
        """
        log = confirmed_log(self.admin, result)
        is_written = result.delivery is not None and self.request.transactional_id
        if self.remembers and not is_written:
            self._put(self._closing(result, log))
        return log

    def of_stream(self, topic: Topic, layout: Records, stream: Stream) -> StateRecord:
        """The record of a stream, which has no log: the next batch run compares with the topic."""
        record = replace(self._closing(Result(topic, layout), None), stream=stream)
        return record if stream.batch >= 0 else replace(record, published=self.trusted.published)

    def _put(self, record: StateRecord) -> None:
        """Write a record, unless it says what the last one says, or another run has written one meanwhile."""
        if record.describes_same(self.record):
            return
        newest = self.store.get(self.admin, record.topic, waits=False)
        known = self.record.run if self.record else None
        if newest is not None and newest.run not in (known, record.run):
            warn_after_write(
                f"model {self.request.model}: another run published to topic '{record.topic}' at the same time ({newest.run}). "
                "The last write of a key wins. Run again when it has finished"
            )
            return
        try:
            self.store.put(record)
        except StateError as error:
            # The data is published, so the run has succeeded. The next run does not trust the old record and reads the topic.
            warn_after_write(f"model {self.request.model}: published, but {error.msg}")

    def _closing(self, result: Result, log: Log | None) -> StateRecord:
        options = self.request.options
        return replace(
            self._new_record(result.topic, self.trusted.created),
            layout=layout_of(result.layout, self.request.time_zone),
            view=view_of(result.layout, options),
            published=Published(now_text(), options.sink_delivery_guarantee or ""),
            log=log,
        )

    def _new_record(self, topic: Topic, is_created: bool) -> StateRecord:
        return StateRecord(
            topic=self.request.topic,
            cluster_id=self.store.cluster_id(self.admin),
            topic_id=topic.id or None,
            owner=self.request.owner,
            alias=str(self.request.relation.identifier),
            run=self.request.run,
            created=is_created,
        )

    def _former_topics(self) -> list[str]:
        """One warning for each topic that this model published to before: they stay as they are."""
        return [
            f"model {self.request.model}: publishes to '{self.request.topic}' now. Its former topic '{record.topic}' is "
            "left as it is; `dbt run-operation orphan_topics` lists it if this project created it."
            for record in self.store.all(self.admin)
            if record.owner == self.request.owner and record.topic not in (self.request.topic, *self.request.other_topics)
        ]


def recall(admin: KafkaAdminClient, topic: Topic | None, request: Request) -> Memory:
    """Read the topic's state record, trust it as far as the live topic confirms it, and refuse another model's topic.

    A preview of another model's topic is not refused here: it collects this reason with others, see `Memory.check_owner`.

    Args:
        topic: as it is now, None if it does not exist.
    """
    store = store_of(request.kafka, request.state)
    access = store.access(admin)
    is_readable = access in (Access.FULL, Access.READ_ONLY)
    record = store.get(admin, request.topic) if is_readable else None
    trusted = trust(record, store.cluster_id(admin), topic, request.options.appends)
    memory = Memory(admin, request, store, access, record, trusted)
    if request.mode != "preview":
        memory.check_owner()
    if request.mode == "publish":
        lease.check(request.model, request.topic, trusted.stream)
    return memory


def look(admin: KafkaAdminClient, topic: Topic, request: Request) -> Trusted:
    """Owner and stream of the topic, as far as they are known without waiting: a transaction of this model may be open."""
    store = store_of(request.kafka, request.state)
    if store.access(admin) not in (Access.FULL, Access.READ_ONLY):
        return NOTHING
    record = store.get(admin, topic.name, waits=False)
    return trust(record, store.cluster_id(admin), topic, request.options.appends)


def is_published(kafka: KafkaSettings, settings: StateSettings, name: str, appends: bool = False) -> bool:
    """Whether a run has published the whole table to the topic that is there now.

    Args:
        appends: see `trust`.
    """
    return _trusted(kafka, settings, name, appends).published is not None


def published_layout(request: Request) -> Layout | None:
    """The layout of the messages in the topic that is there now; None if it is not known."""
    return _trusted(request.kafka, request.state, request.topic, request.options.appends).layout


def _trusted(kafka: KafkaSettings, settings: StateSettings, name: str, appends: bool) -> Trusted:
    """What is known about a topic before the run.

    Does not wait for an open transaction: if a killed run of the model left it, the next run aborts it, and comes after this.
    """
    store = store_of(kafka, settings)
    with kafka.admin() as admin:
        if store.access(admin) not in (Access.FULL, Access.READ_ONLY):
            return NOTHING
        record, topic = store.get(admin, name, waits=False), topics.describe(admin, name)
        return trust(record, store.cluster_id(admin), topic, appends)


def layout_of(records: Records, time_zone: str) -> Layout:
    """How rows become messages, as the state record has it."""
    types = {field.column: type_text(field.type) for side in (records.key, records.value) for field in side.fields}
    columns = tuple((name, types[name]) for name in records.columns if name in types)
    return Layout(records.key_layout(), records.value_layout(), columns, time_zone)


def columns_of(layout: Layout) -> StructType:
    """The columns of a layout with their Spark types."""
    ddl = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in layout.columns)
    parsed = StructType.fromDDL(ddl)
    assert isinstance(parsed, StructType)
    return parsed


def view_of(records: Records, options: ModelOptions) -> View:
    """What the relation shows, as the state record has it."""
    return View(options.materialization, tuple(field.column for field in records.key.fields), options.ignore_parse_errors)


def confirmed_log(admin: KafkaAdminClient, result: Result) -> Log | None:
    """Where the topic's partitions end after the run; None if somebody else wrote to it at the same time, or may have.

    The sink's first offset in each partition must be the end that the run compared with, its records must be all that is between
    its first and its last offset, and the partitions that it did not write to must not have moved.
    """
    topic, delivery = result.topic, result.delivery
    seed = None if result.digest is None else result.seed
    if delivery is None:
        return Log(dict(topic.first), dict(topic.end), result.live_keys, result.digest, seed)
    offsets = delivery.offsets
    if offsets is None or delivery.delivery == "none" or any(None in bounds for bounds in offsets.values()):
        return None
    begins_at_end = all(first == topic.end.get(partition) for partition, (first, _) in offsets.items())
    is_dense = sum(last - first + 1 for first, last in offsets.values()) == delivery.records
    others = [partition for partition in topic.end if partition not in offsets]
    if not (begins_at_end and is_dense):
        return None
    if others and topics.ends(admin, topic.name, others) != {partition: topic.end[partition] for partition in others}:
        return None
    return Log(dict(topic.first), delivery.end_offsets(topic.end) or {}, result.live_keys, result.digest, seed)
