"""The offsets of a source's group in the transaction of an exactly-once run: committed with the records, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaAdminClient
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import DeliveryError, GuardError
from dbt.adapters.upsert_kafka.sinks import GroupCommit
from tests.dbt_project import Project
from tests.functional.test_group_commits import FILES, committed
from tests.functional.topic_writer import Message, write
from tests.services import Cluster, group_member, read_topic
from tests.tables import Table

EXACTLY_ONCE = {"sink_delivery_guarantee": "exactly-once"}


class Group:
    """The consumer group of a source with two partitions."""

    def __init__(self, table: Table) -> None:
        self.table, self.name, self.topic = table, f"{table.topic}.group", f"{table.topic}.events"
        write(table.broker, self.topic, [Message({"n": n}, partition=n % 2) for n in range(8)], partitions=2)

    def commit(self, before: tuple[int, ...], after: tuple[int, ...], metadata: str = "by test") -> GroupCommit:
        first, last = ({(self.topic, p): offset for p, offset in enumerate(offsets)} for offsets in (before, after))
        return GroupCommit("events", self.name, first, last, is_empty=before == after, metadata=metadata)

    def offsets(self) -> tuple[int, ...]:
        """As another client reads them."""
        admin = KafkaAdminClient(bootstrap_servers=self.table.broker)
        try:
            found = admin.list_group_offsets({self.name: None})[self.name]
            return tuple(at.offset for _, at in sorted(found.items()))
        finally:
            admin.close()


@pytest.fixture
def group(table: Table) -> Group:
    return Group(table)


def test_offsets_are_committed_with_the_records_and_without_any(table: Table, group: Group) -> None:
    rows = [(n, "x") for n in range(100)]
    published = table.publish(rows, groups=(group.commit((), (2, 1)),), **EXACTLY_ONCE)
    assert (published.records, published.groups, group.offsets()) == (100, [group.name], (2, 1))
    end = table.end()
    # Nothing to write, and the offsets move.
    unchanged = table.publish(rows, groups=(group.commit((2, 1), (4, 3)),), **EXACTLY_ONCE)
    assert (unchanged.unchanged, unchanged.groups, group.offsets(), table.end()) == (100, [group.name], (4, 3), end)


def test_append_commits_offsets_with_and_without_events(table: Table, group: Group) -> None:
    table.materialization, table.options = "kafka", {}
    table.publish([(1, "x")], groups=(group.commit((), (1, 1)),), **EXACTLY_ONCE)
    table.publish([], groups=(group.commit((1, 1), (2, 2)),), **EXACTLY_ONCE)
    assert (len(table.records()), group.offsets()) == (1, (2, 2))


def test_group_that_moved_or_has_members_is_refused_before_the_write(table: Table, group: Group) -> None:
    table.publish([(1, "x")], groups=(group.commit((), (2, 1)),), **EXACTLY_ONCE)
    end = table.end()

    def assert_refused(commit: GroupCommit, message: str) -> None:
        with pytest.raises(GuardError, match=message):
            table.publish([(1, "y")], groups=(commit,), **EXACTLY_ONCE)
        assert (table.end(), group.offsets(), len(table.records())) == (end, (2, 1), 1)

    assert_refused(group.commit((), (2, 1)), "published already. Nothing was written. Run the source .*select events[+]")
    assert_refused(group.commit((1, 1), (3, 3)), "another run or consumer committed them. Nothing was written")
    with group_member(table.broker, group.name, group.topic):
        assert_refused(group.commit((2, 1), (3, 3)), "has members: another consumer reads with it. Nothing was written")
    # A source that read nothing may run again.
    table.publish([(1, "y")], groups=(group.commit((2, 1), (2, 1)),), **EXACTLY_ONCE)
    assert group.offsets() == (2, 1)


def test_failed_run_commits_neither_records_nor_offsets(table: Table, group: Group) -> None:
    table.publish([(1, "x")], groups=(group.commit((), (1, 1)),), **EXACTLY_ONCE)
    with pytest.raises(GuardError, match=r"(?i)duplicate|more than once"):
        table.publish([(1, "y"), (1, "z")], groups=(group.commit((1, 1), (2, 2)),), **EXACTLY_ONCE)
    # The brokers refuse the offsets when the records are written already.
    too_long = group.commit((1, 1), (2, 2), metadata="x" * 5000)
    with pytest.raises(DeliveryError, match="Nothing of this run is visible to read_committed readers"):
        table.publish([(1, "y")], groups=(too_long,), **EXACTLY_ONCE)
    assert (table.latest(), group.offsets()) == ({b'{"id":1}': b'{"id":1,"name":"x"}'}, (1, 1))
    table.publish([(1, "y")], groups=(group.commit((1, 1), (2, 2)),), **EXACTLY_ONCE)
    assert (table.latest(), group.offsets()) == ({b'{"id":1}': b'{"id":1,"name":"y"}'}, (2, 2))


@pytest.mark.nightly
@pytest.mark.parametrize("version", [0, 1])
def test_offsets_are_committed_with_older_transaction_versions(
    version: int, spark: SparkSession, topic_name: str, schema_name: str
) -> None:
    with Cluster(features={"transaction.version": version}) as cluster:
        table = Table(spark, cluster.bootstrap_servers, topic_name, schema_name)
        group = Group(table)
        table.publish([(1, "x")], groups=(group.commit((), (2, 1)),), **EXACTLY_ONCE)
        table.publish([(1, "x")], groups=(group.commit((2, 1), (4, 4)),), **EXACTLY_ONCE)
        assert (group.offsets(), len(table.records())) == ((4, 4), 1)


COPIED = """
{{ config(materialized='kafka', format='csv', topic=var('events') ~ '_copied', sink_delivery_guarantee='exactly-once') }}
select n from {{ ref('shown') }} where n < 100"""


def test_only_exactly_once_consumer_commits_its_source_without_a_hook(
    dbt_project: Callable[..., Project], broker: str, schema_name: str
) -> None:
    topic = f"{schema_name}.events"
    files = {name: text for name, text in FILES.items() if name not in ("models/archive.sql", "models/stored.sql")}
    project = dbt_project(
        {**files, "models/copied.sql": COPIED, "dbt_project.yml": f"name: shop\nprofile: shop\nvars: {{events: {topic}}}\n"}
    )

    def copied() -> list[Any]:
        return sorted(record.value for record in read_topic(broker, f"{topic}_copied"))

    write(broker, topic, [Message({"n": 1}), Message({"n": 2})])
    with project.one_process():
        project.succeed("run", "--vars", "upsert_kafka_dry_run: true", "--select", "events", "shown", "copied")
        assert committed(broker, topic) is None
        project.succeed("run", "--select", "events")
        assert committed(broker, topic) is None
        # The source ran in an earlier command. Its slice is consumed once.
        first = project.succeed("run", "--exclude", "events")
        assert (first.response("copied")["groups"], committed(broker, topic), copied()) == ([topic], 2, [b"1", b"2"])
        again = project.run("run", "--select", "copied")
        assert again.exit_code == 1 and "these messages are published already" in " ".join(again.output.split())
        assert (committed(broker, topic), copied()) == (2, [b"1", b"2"])
        # Nothing to write: the SELECT leaves the message out.
        write(broker, topic, [Message({"n": 100})])
        project.succeed("run")
        assert (committed(broker, topic), copied()) == (3, [b"1", b"2"])
        # With a second consumer, the group is left to the hook, which this project does not have.
        write(broker, topic, [Message({"n": 3})])
        project.write({"models/archive.sql": FILES["models/archive.sql"]})
        second = project.succeed("run")
        assert second.response("copied").get("groups") is None and committed(broker, topic) == 3
