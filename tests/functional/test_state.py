"""The state record of a topic decides what a run remembers: each test changes something between two runs.

After each run the topic is exactly the rows, or the run was refused and wrote nothing. Records are read by another Kafka client.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewPartitions
from pyspark.sql import Column
from pyspark.sql import functions as F

from dbt.adapters.upsert_kafka.errors import GuardError, StateError
from dbt.adapters.upsert_kafka.formats import records
from dbt.adapters.upsert_kafka.formats.records import hashes
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.topics import TopicSettings
from dbt.adapters.upsert_kafka.publish import buckets, change_events, compare, memory, pipeline, scan, snapshots
from dbt.adapters.upsert_kafka.state.record import Owner
from dbt.adapters.upsert_kafka.state.store import StateSettings, StateStore
from tests.counts import counts
from tests.services import delete_topic
from tests.spark.formats.test_hashes import COLLISION
from tests.tables import Table, json_key, json_value

ANN, BOB, CEM = (1, "ann"), (2, "bob"), (3, "cem")
GUARANTEES = ["at-least-once", "exactly-once"]


@pytest.fixture
def admin(broker: str) -> Iterator[KafkaAdminClient]:
    with KafkaSettings(broker).admin() as client:
        yield client


def contents(*rows: tuple[int, str]) -> dict[bytes, bytes]:
    return {json_key(row[0]): json_value(row) for row in rows}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_record_describes_the_topic_after_each_run(table: Table, guarantee: str, admin: KafkaAdminClient) -> None:
    table.options["sink_delivery_guarantee"] = guarantee
    for rows in ([ANN, BOB], [ANN, (2, "bo"), CEM], [CEM]):
        table.publish(rows)
        record, topic = table.state_record(), topics.describe(admin, table.topic)
        assert record is not None and record.log is not None and record.published is not None and topic is not None
        assert (record.log.first, record.log.end, record.log.live_keys) == (topic.first, topic.end, len(rows))
        assert (record.owner, record.created, record.topic_id) == (table.owner, True, topic.id)
        assert record.published.guarantee == guarantee


def test_unchanged_run_writes_no_record(table: Table) -> None:
    table.publish([ANN, BOB])
    first = table.state_record()
    table.publish([ANN, BOB])
    assert table.state_record() == first


@pytest.mark.parametrize("mode", ["check", "preview"])
def test_check_and_preview_write_no_record(table: Table, mode: str) -> None:
    table.publish([ANN], mode=mode)
    assert table.state_record() is None


def test_slice_after_the_topic_was_deleted_is_not_a_slice(table: Table, admin: KafkaAdminClient) -> None:
    table.options |= {"missing_keys": "keep"}
    kafka = KafkaSettings(table.broker)
    assert not memory.is_published(kafka, StateSettings(), table.topic)
    table.publish([ANN, BOB])
    assert memory.is_published(kafka, StateSettings(), table.topic)
    delete_topic(table.broker, table.topic)
    assert not memory.is_published(kafka, StateSettings(), table.topic)
    topics.create(admin, table.topic, TopicSettings(2, 1))
    assert not memory.is_published(kafka, StateSettings(), table.topic), "the topic was created again"
    table.publish([ANN, BOB])
    assert memory.is_published(kafka, StateSettings(), table.topic)
    assert not memory.is_published(kafka, StateSettings(), f"{table.topic}.other")


def test_changed_key_is_refused_also_after_a_check_run(table: Table) -> None:
    columns = "id int, name string"
    table.publish([ANN, BOB, CEM], columns)
    before = table.end()
    table.publish([ANN, BOB, CEM], columns, unique_key="name", mode="check")
    with pytest.raises(GuardError, match=r"the key changed from id \(int\) to name \(string\)"):
        table.publish([ANN, BOB, CEM], columns, unique_key="name")
    assert table.end() == before
    table.publish([ANN, BOB, CEM], columns, unique_key="name", full_refresh=True)
    assert set(table.latest()) == {b'{"name":"ann"}', b'{"name":"bob"}', b'{"name":"cem"}'}


@pytest.fixture
def small_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is large enough for a snapshot."""
    monkeypatch.setattr(snapshots, "FEWEST_ROWS", 0)
    monkeypatch.setattr(buckets, "KEYS_PER_BUCKET", 1)


@pytest.mark.usefixtures("small_snapshots")
@pytest.mark.parametrize("full_refresh", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_damaged_snapshot_is_not_used(table: Table, full_refresh: bool) -> None:
    rows = [(i, f"name {i}") for i in range(20)]
    table.publish(rows)
    damaged = table.relation.snapshot_table
    table.spark.sql(f"TRUNCATE TABLE `{damaged.schema}`.`{damaged.identifier}`")
    changed = [(0, "zero"), *rows[5:]]
    published = table.publish(changed, full_refresh=full_refresh)
    assert published.deleted == 4
    assert table.latest() == contents(*changed)


@pytest.mark.parametrize("fewest_rows", [0, snapshots.FEWEST_ROWS])
@pytest.mark.parametrize("of_key", [False, True])
def test_change_is_seen_if_xxhash64_is_equal(
    table: Table, monkeypatch: pytest.MonkeyPatch, fewest_rows: int, of_key: bool
) -> None:
    monkeypatch.setattr(snapshots, "FEWEST_ROWS", fewest_rows)
    table.materialization = "kafka"
    table.options |= {"key_format": "raw", "value_format": "raw", "value_fields_include": "EXCEPT_KEY", "update_mode": "upsert"}
    for changed in COLLISION:
        row = (changed, b"same") if of_key else (b"same", changed)
        table.publish(f"SELECT X'{row[0].hex()}' AS id, X'{row[1].hex()}' AS name")
        assert table.latest() == dict([row])


@pytest.mark.parametrize("fewest_rows", [0, snapshots.FEWEST_ROWS])
@pytest.mark.parametrize("constant", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_change_is_seen_by_each_of_the_two_hashes(
    table: Table, monkeypatch: pytest.MonkeyPatch, fewest_rows: int, constant: int
) -> None:
    def weak(seed: int) -> list[Column]:
        found = hashes(seed)
        return [F.lit(7).cast("long") if number == constant else found[number] for number in (0, 1)]

    monkeypatch.setattr(snapshots, "FEWEST_ROWS", fewest_rows)
    monkeypatch.setattr(records, "hashes", weak)
    monkeypatch.setattr(scan, "hashes", weak)
    table.publish([ANN, BOB])
    assert counts(table.publish([ANN, (2, "bo")])) == (0, 1, 0, 1)
    assert counts(table.publish([ANN, (3, "bo")])) == (1, 0, 1, 1)
    assert table.latest() == contents(ANN, (3, "bo"))


def test_seed_stays_between_runs_and_differs_between_topics(table: Table) -> None:
    def seed() -> int:
        record = table.state_record()
        assert record is not None and record.log is not None and record.log.seed is not None
        return record.log.seed

    table.publish([ANN])
    first = seed()
    table.publish([ANN, BOB])
    assert seed() == first
    delete_topic(table.broker, table.topic)
    table.publish([ANN, BOB])
    assert seed() != first


@pytest.mark.usefixtures("small_snapshots")
def test_digest_without_a_seed_is_not_used(table: Table) -> None:
    table.publish([ANN, BOB])
    record = table.state_record()
    assert record is not None and record.log is not None
    store = memory.store_of(KafkaSettings(table.broker), StateSettings())
    store.put(replace(record, log=replace(record.log, seed=None, digest="[2, 0, 1, 2]")))
    assert counts(table.publish([ANN, (2, "bo")])) == (0, 1, 0, 1)
    assert table.latest() == contents(ANN, (2, "bo"))
    written = table.state_record()
    assert written is not None and written.log is not None and written.log.is_comparable


@pytest.mark.usefixtures("small_snapshots")
def test_unchanged_run_without_local_tables_does_not_read_the_topic(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(i, f"name {i}") for i in range(20)]
    table.publish(rows)
    table.spark.sql(f"DROP TABLE {table.relation.snapshot_table.render()}")

    def fail(*_: object) -> None:
        raise AssertionError("the topic was read")

    monkeypatch.setattr(change_events, "with_tombstones", fail)
    assert counts(table.publish(rows)) == (0, 0, 0, 20)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_topic_that_appears_during_the_first_load_is_compared_and_not_ours(
    table: Table, guarantee: str, admin: KafkaAdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.options["sink_delivery_guarantee"] = guarantee
    compared = compare.compare

    def with_another_writer(inputs: compare.Inputs) -> compare.Comparison:
        found = compared(inputs)
        if inputs.topic is None:
            topics.create(admin, table.topic, TopicSettings(2, 1))
            table.write_by_hand((json_key(9), json_value((9, "other")), 0))
        return found

    monkeypatch.setattr(pipeline.compare, "compare", with_another_writer)
    with pytest.raises(GuardError, match=r"has no owner in the state topic.*change 0 keys and delete 1 key"):
        table.publish([ANN])
    assert table.latest() == contents((9, "other"))
    assert table.state_record() is None
    table.adopt()
    table.publish([ANN])
    assert table.latest() == contents(ANN)
    record = table.state_record()
    assert record is not None and not record.created, "another writer created the topic"


def test_partitions_that_grow_during_the_comparison_are_compared_again(
    table: Table, admin: KafkaAdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.publish([ANN])
    compared = compare.compare
    grown: list[bool] = []

    def growing(inputs: compare.Inputs) -> compare.Comparison:
        found = compared(inputs)
        if not grown:
            admin.create_partitions({table.topic: NewPartitions(6)})
            grown.append(True)
        return found

    monkeypatch.setattr(pipeline.compare, "compare", growing)
    rows = [(i, f"name {i}") for i in range(50)]
    table.publish(rows)
    partitions: dict[bytes | None, set[int]] = {}
    for record in table.records():
        partitions.setdefault(record.key, set()).add(record.partition)
    assert max(map(len, partitions.values())) == 1
    assert table.latest() == contents(*rows)
    before = table.end()
    assert counts(table.publish(rows)) == (0, 0, 0, 50)
    assert table.end() == before


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Owner("shop", "prod", "s", "users"), id="environment"),
        pytest.param(Owner("other", "dev", "s", "users"), id="project"),
        pytest.param(Owner("shop", "dev", "s", "people"), id="model"),
    ],
)
def test_topic_of_another_owner_is_refused(table: Table, other: Owner) -> None:
    mine = replace(other, project="shop", environment="dev", model="users")
    table.publish([ANN, BOB], owner=other)
    before, record = table.end(), table.state_record()
    for rows in ([ANN], [ANN, BOB, CEM], [ANN, BOB]):
        with pytest.raises(GuardError, match=f"owned by model {other.model} of project {other.project}, environment") as refused:
            table.publish(rows, owner=mine)
    assert "last run: invocation" in str(refused.value) and "adopt_topic" in str(refused.value)
    assert (table.end(), table.state_record()) == (before, record)


def test_unowned_topic_is_taken_by_a_run_that_only_adds(table: Table, admin: KafkaAdminClient) -> None:
    topics.create(admin, table.topic, TopicSettings(2, 1))
    table.write_by_hand((json_key(1), json_value(ANN), 0))
    before = table.end()
    with pytest.raises(GuardError, match=r"has no owner in the state topic, and this run would change 1 key and delete 0 keys"):
        table.publish([(1, "an"), BOB])
    with pytest.raises(GuardError, match=r"change 0 keys and delete 1 key"):
        table.publish([BOB])
    assert table.end() == before
    assert counts(table.publish([ANN, BOB])) == (1, 0, 0, 1)
    assert counts(table.publish([(1, "an")])) == (0, 1, 1, 0)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("killed_at", [pytest.param("claim", marks=pytest.mark.nightly), "data", "close"])
def test_run_killed_between_claim_data_and_closing_record_is_completed_by_the_next(
    table: Table, guarantee: str, killed_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.options["sink_delivery_guarantee"] = guarantee
    for before, rows in (([], [ANN, BOB]), ([ANN, BOB], [(1, "an"), CEM])):
        with monkeypatch.context() as patched:

            def killed(*_: object, **__: object) -> None:
                raise KeyboardInterrupt

            if killed_at == "claim":
                patched.setattr(pipeline.deliver, "deliver", killed)
            elif killed_at == "data":
                patched.setattr(pipeline.expose, "expose", killed)
            else:
                patched.setattr(memory.Memory, "_closing", killed)
            with pytest.raises(KeyboardInterrupt):
                table.publish(rows)
        if killed_at == "claim" or (killed_at == "close" and guarantee == "exactly-once"):
            assert table.latest() == contents(*before)
        else:
            assert table.latest() == contents(*rows)
        record = table.state_record()
        assert record is not None and record.owner == table.owner
        table.publish(rows)
        assert table.latest() == contents(*rows)
        end = table.end()
        table.publish(rows)
        assert table.end() == end


def test_closing_record_that_fails_is_a_warning_and_the_next_run_reads_the_topic(
    table: Table, monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    table.publish([ANN])
    with monkeypatch.context() as patched:

        def fail(*_: object) -> None:
            raise StateError("the state record could not be written")

        patched.setattr(StateStore, "put", fail)
        table.publish([ANN, BOB])
    assert warnings == ["model users: published, but the state record could not be written"]
    assert counts(table.publish([ANN, BOB])) == (0, 0, 0, 2)
    table.publish([CEM])
    assert table.latest() == contents(CEM)


def test_lost_state_topic_leaves_the_topic_unowned(table: Table, admin: KafkaAdminClient) -> None:
    settings = StateSettings(f"{table.topic}.state", 1)
    table.publish([ANN, BOB], state=settings)
    delete_topic(table.broker, settings.topic)
    memory.store_of(KafkaSettings(table.broker), settings).__init__(KafkaSettings(table.broker), settings)  # type: ignore[misc]
    before = table.end()
    with pytest.raises(GuardError, match="has no owner in the state topic"):
        table.publish([ANN], state=settings)
    assert table.end() == before
    table.publish([ANN, BOB, CEM], state=settings)
    table.publish([ANN], state=settings)
    assert table.latest() == contents(ANN)


def test_without_state_there_are_no_owners(table: Table) -> None:
    off = StateSettings("none")
    table.publish([ANN, BOB], state=off)
    table.publish([ANN], state=off, owner=Owner("other", "prod", "s", "m"))
    assert table.latest() == contents(ANN)
    assert not memory.is_published(KafkaSettings(table.broker), off, table.topic)
    with KafkaSettings(table.broker).admin() as admin:
        assert topics.describe(admin, "none") is None
        store = StateStore(KafkaSettings(table.broker), StateSettings())
        store.access(admin)
        assert store.get(admin, table.topic) is None
