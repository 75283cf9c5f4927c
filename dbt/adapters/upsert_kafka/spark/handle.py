"""The handle of a dbt connection: one Spark session, which runs one statement at a time. Leaves to `session` how Spark starts."""

from __future__ import annotations

import datetime as dt
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

from dbt.adapters.events.logging import AdapterLogger
from dbt_common.exceptions import DbtRuntimeError
from pyspark.errors import PySparkException

from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import STOPPED, lacks
from dbt.adapters.upsert_kafka.spark import session, shared_jvm
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS
from dbt.adapters.upsert_kafka.spark.restoring_session import RestoringSession
from dbt.adapters.upsert_kafka.spark.row_counter import TagRowCounter
from dbt.adapters.upsert_kafka.sql import split_statements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import Row

logger = AdapterLogger("upsert_kafka")

# The text of an error ends where a Java stack trace or a plan begins.
_STACK_OR_PLAN = re.compile(r"\n\s*at |\n+JVM stacktrace|;\n(?=['A-Z+])")
# The error of Kafka's consumer if READ on a topic is denied. WRITE is checked before a run writes.
_DENIED = re.compile(r"TopicAuthorizationException: Not authorized to access topics: \[([^\]]+)\]")

CANCEL_INTERVAL_SECONDS = 0.2
# The column that DELETE, UPDATE and MERGE of Delta return.
AFFECTED = "num_affected_rows"

Description = Sequence[tuple[str, str, None, None, None, None, bool]]


class MissingRelations(Protocol):
    """What happens if a statement needs a relation that the catalog does not have; the adapter knows."""

    def restore(self, spark: SparkSession, schema: str, identifier: str) -> bool:
        """Create the relation; False if it can't be created."""

    def explain_missing(self, schema: str, identifier: str) -> str | None:
        """Why it does not exist and what to do; None if that is not known."""


class SessionHandle:
    """The handle and the cursor of a dbt connection: one Spark session, one statement at a time."""

    def __init__(self, credentials: UpsertKafkaCredentials, name: str, relations: MissingRelations | None = None) -> None:
        self.credentials = credentials
        self.relations = relations
        # Processes that share a JVM may run models of one name.
        self.tag = f"{os.getpid()}-" + "".join(c if c.isalnum() else "-" for c in name)
        self.is_cancelled = False
        self._is_closed = False
        self._spark: SparkSession | None = None
        self._frame: DataFrame | None = None
        self._rows: Iterator[Row] | None = None
        self._fetched_rows: int | None = None
        self.row_counter = TagRowCounter(self.tag)

    @property
    def spark(self) -> SparkSession:
        """The session of this connection, opened on first use.

        Raises:
            DbtRuntimeError: the command was stopped before the first statement.
        """
        if self._spark is None and self.is_cancelled:
            raise DbtRuntimeError(STOPPED)
        if self._spark is None:
            self._spark = session.new_session(self.credentials)
            if isinstance(self._spark, RestoringSession) and self.relations is not None:
                self._spark.restore = self.relations.restore
            if not self.credentials.remote:
                # A tag of the SparkSession would be visible to this thread only, but another thread cancels.
                self._spark.sparkContext.addJobTag(self.tag)
                if shared_jvm.is_attached():
                    self._spark.sparkContext.addJobTag(shared_jvm.job_tag(os.getpid()))
                self.row_counter.attach(self._spark)
        return self._spark

    def cursor(self) -> SessionHandle:
        self._frame, self._rows, self._fetched_rows = None, None, None
        return self

    def execute(self, sql: str, bindings: Sequence[Any] | None = None) -> None:
        if bindings:
            sql = sql % tuple(_literal(value) for value in bindings)
        *first, last = split_statements(sql)
        for statement in first:
            self.spark.sql(statement).collect()
        self._frame, self._rows, self._fetched_rows = self.spark.sql(last), None, None

    def run(self) -> None:
        """Run a query whose rows are not fetched; commands have run already in `execute`."""
        if self._frame is not None and self._frame.columns and self.rows_affected is None:
            self._frame.write.format("noop").mode("overwrite").save()

    @property
    def rows_affected(self) -> int | None:
        """The number of rows that were fetched, or that a statement of Delta changed; None if unknown."""
        if self._fetched_rows is None and self._frame is not None and AFFECTED in self._frame.columns:
            self._fetched_rows = sum(row[AFFECTED] or 0 for row in self._frame.collect())
        return self._fetched_rows

    @property
    def description(self) -> Description:
        if self._frame is None:
            return []
        return [(f.name, f.dataType.simpleString(), None, None, None, None, f.nullable) for f in self._frame.schema.fields]

    def fetchall(self) -> list[Row]:
        return self._counted(list(self._fetched()))

    def fetchmany(self, size: int) -> list[Row]:
        if self._rows is None and self._frame is not None:
            self._rows = iter(self._frame.take(size))
        return self._counted([row for _, row in zip(range(size), self._fetched(), strict=False)])

    def fetchone(self) -> Row | None:
        return next(self._fetched(), None)

    def cancel(self) -> None:
        """Cancel the running job and every later one: the thread of this connection may be between two jobs."""
        self.is_cancelled = True
        threading.Thread(target=self._cancel_until_closed, daemon=True).start()

    def _cancel_until_closed(self) -> None:
        while not self._is_closed:
            spark = self._spark
            try:
                if spark is None:
                    # The thread may be opening its session just now.
                    pass
                elif self.credentials.remote:
                    spark.interruptAll()
                else:
                    spark.sparkContext.cancelJobsWithTag(self.tag)
            except (*SPARK_ERRORS, OSError) as error:
                # A signal for the whole process group also stops Spark, and its jobs.
                logger.debug(f"Jobs were not cancelled, Spark has stopped: {error!r}")
                return
            time.sleep(CANCEL_INTERVAL_SECONDS)

    def rollback(self) -> None:
        """Spark has no transactions."""

    def close(self) -> None:
        self._is_closed = True
        self._frame, self._rows, self._spark = None, None, None
        self.row_counter.attach(None)

    def _counted(self, rows: list[Row]) -> list[Row]:
        self._fetched_rows = len(rows)
        return rows

    def _fetched(self) -> Iterator[Row]:
        if self._rows is None:
            self._rows = iter(self._frame.collect() if self._frame is not None else ())
        return self._rows


def _literal(value: Any) -> str:
    """Return a bound value as a SQL literal, with quotes and backslashes escaped; dbt binds values of seeds only."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (int, float, Decimal)):
        return f"'{value}'"
    if isinstance(value, dt.datetime):
        return f"'{value.isoformat(sep=' ')}'"
    escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def error_line(error: BaseException) -> str:
    """Return the message of a Spark error without its Java stack trace."""
    java = None if isinstance(error, PySparkException) else getattr(error, "java_exception", None)
    text = str(error) if java is None or java.getMessage() is None else str(java.getMessage())
    if denied := _DENIED.search(text):
        return lacks("this user", "READ", "topic", denied[1])
    return _STACK_OR_PLAN.split(text.strip(), maxsplit=1)[0].strip()
