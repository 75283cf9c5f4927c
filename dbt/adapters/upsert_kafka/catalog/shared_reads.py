"""One read of a topic for all tests of a command: the rows of the model's view, stored until the last of these tests has ended.

Only the columns that the tests read are stored, if these are known, see `tested_columns`. A test gets the stored rows only if
the topic is where it was before they were read, so it finds what reading the topic again would find. Leaves to the adapter which
tests a command runs, and to Spark where the rows are: in memory, otherwise on disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dbt.adapters.events.logging import AdapterLogger
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka.catalog import name, tested_columns
from dbt.adapters.upsert_kafka.kafka_client.topics import Topic
from dbt.adapters.upsert_kafka.relation import UpsertKafkaRelation
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS
from dbt.adapters.upsert_kafka.sql import quote_identifier, replace_name

logger = AdapterLogger("upsert_kafka")

DATABASE = "global_temp"
"""Of Spark's views that all sessions of a process see and no catalog has."""
FEWEST_TESTS = 2
"""A single test reads the topic once anyway."""
MOST_RECORDS = 20_000_000
"""Of a topic whose rows are stored: with more, they would fill the disk of a machine."""


@dataclass(frozen=True)
class ReadTopic:
    """The relation of a topic that tests read."""

    relation: UpsertKafkaRelation
    tests: frozenset[str]
    """All tests of this command that read it."""
    position: Callable[[], Topic | None]
    """Describes the topic as it is now; None if there is no topic."""
    columns: frozenset[str] | None = None
    """What the tests are expected to read, in lower case; None if they may read any column."""


@dataclass
class _Read:
    """The stored rows of one topic, and who needs them."""

    relation: UpsertKafkaRelation
    waiting: set[str]
    """The tests that have not ended."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    topic: Topic | None = None
    """Before the rows were read; None if there are no stored rows."""
    frame: DataFrame | None = None
    columns: frozenset[str] | None = None
    """The stored ones, in lower case; None if all are."""
    is_usable: bool = True
    """False after the rows could not be stored, for example because a column can't be decoded that no test uses."""

    @property
    def view(self) -> str:
        """The name of the view of the stored rows. Tests of a relation of this name in another schema read its topic."""
        return str(self.relation.identifier)


class SharedReads:
    """The stored rows of the topics that the tests of a command read. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads: dict[str, _Read] = {}
        """By the name of the relation without its schema, in lower case."""

    def sql_of(self, spark: SparkSession, sql: str, topics: list[ReadTopic]) -> str:
        """The SQL of a test with stored rows in place of the relations of topics that several tests read."""
        original = sql
        for tested in topics:
            relation = tested.relation
            if len(tested.tests) < FEWEST_TESTS or replace_name(sql, relation.render(), "") == sql:
                continue
            with self._lock:
                # Spark has one global temporary view of a name, in whatever case.
                name_of_view = str(relation.identifier).lower()
                read = self._reads.setdefault(name_of_view, _Read(relation, set(tested.tests), columns=tested.columns))
            needed = tested_columns.read_by(original, relation.render())
            if read.relation == relation and self._is_stored(spark, tested, read, needed):
                # SQL may use the last part of the name as an alias: `orders.id`.
                sql = replace_name(sql, relation.render(), f"{DATABASE}.{quote_identifier(read.view)}")
        return sql

    def end(self, test: str) -> None:
        """Free the rows that no test needs after this one."""
        with self._lock:
            for read in self._reads.values():
                read.waiting.discard(test)
            ended = [key for key, read in self._reads.items() if not read.waiting]
            reads = [self._reads.pop(key) for key in ended]
        for read in reads:
            self._drop(read)

    def close(self) -> None:
        """Free all rows: tests that were not run do not end."""
        with self._lock:
            reads, self._reads = list(self._reads.values()), {}
        for read in reads:
            self._drop(read)

    def _is_stored(self, spark: SparkSession, tested: ReadTopic, read: _Read, needed: frozenset[str] | None) -> bool:
        """Store the rows unless they are stored and the topic has not changed; False if the test has to read the topic itself.

        Args:
            needed: the columns that the test reads, None if it may read any.
        """
        with read.lock:
            if read.columns is not None and (needed is None or not needed <= read.columns):
                # The project has a macro of its own for one of dbt's tests.
                logger.debug(f"A test reads more of {tested.relation} than {sorted(read.columns)}, all columns are stored for it")
                read.columns = None
                self._free(read)
            topic = tested.position()
            if topic is None or not read.is_usable or _records(topic) > MOST_RECORDS:
                return False
            if read.frame is not None and _place(topic) != _place(read.topic):
                logger.debug(f"Topic '{topic.name}' has changed since it was read for a test, reading it again")
                self._free(read)
            if read.frame is None:
                try:
                    self._store(spark, tested, read, topic)
                except SPARK_ERRORS as error:
                    # The test reports it, unless it concerns rows or columns that the test does not read.
                    logger.debug(f"The rows of {tested.relation} were not stored for its tests: {error!r}")
                    read.is_usable = False
                    self._free(read)
            return read.is_usable

    def _store(self, spark: SparkSession, tested: ReadTopic, read: _Read, topic: Topic) -> None:
        frame = spark.table(name(tested.relation))
        if read.columns is not None:
            frame = frame.select(*(quote_identifier(column) for column in frame.columns if column.lower() in read.columns))
        frame.createOrReplaceGlobalTempView(read.view)
        read.frame, read.topic = frame.persist(StorageLevel.MEMORY_AND_DISK), topic
        frame.count()

    def _free(self, read: _Read) -> None:
        """Free the rows. The view stays: another test may be about to read it, and then it reads the topic."""
        frame, read.frame = read.frame, None
        if frame is not None:
            frame.unpersist()

    def _drop(self, read: _Read) -> None:
        frame = read.frame
        if frame is None:
            return
        try:
            self._free(read)
            frame.sparkSession.catalog.dropGlobalTempView(read.view)
        except (*SPARK_ERRORS, OSError) as error:
            # A Spark that ended stores nothing.
            logger.debug(f"The rows of {read.relation} were not freed: {error!r}")


def _records(topic: Topic) -> int:
    """How many records the topic has at most."""
    return sum(topic.end.values()) - sum(topic.first.values())


def _place(topic: Topic | None) -> tuple[Any, ...] | None:
    """What changes if anybody writes to the topic, deletes records from it, or creates it anew."""
    return None if topic is None else (topic.id, sorted(topic.first.items()), sorted(topic.end.items()))
