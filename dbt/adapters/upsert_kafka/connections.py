"""dbt's connections, each with a Spark session of its own: temporary views and settings are not shared.

A statement runs when it is executed, and its error is raised there. Leaves to `session` how Spark starts.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from decimal import Decimal
from multiprocessing.context import SpawnContext
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol

from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError
from pyspark.errors import PySparkException

from dbt.adapters.upsert_kafka import dbt_internals, progress
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.dbt_internals import ConnectionManagerHooks
from dbt.adapters.upsert_kafka.errors import lacks
from dbt.adapters.upsert_kafka.spark import session, shared_jvm, table_formats
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS
from dbt.adapters.upsert_kafka.spark.restoring_session import NOT_FOUND, RestoringSession, missing_relation
from dbt.adapters.upsert_kafka.spark.row_counter import TagRowCounter
from dbt.adapters.upsert_kafka.sql import split_statements

if TYPE_CHECKING:
    import agate
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import Row

logger = AdapterLogger("upsert_kafka")

# The text of an error ends where a Java stack trace or a plan begins.
_STACK_OR_PLAN = re.compile(r"\n\s*at |\n+JVM stacktrace|;\n(?=['A-Z+])")
# The error of Kafka's consumer if READ on a topic is denied. WRITE is checked before a run writes.
_DENIED = re.compile(r"TopicAuthorizationException: Not authorized to access topics: \[([^\]]+)\]")

CANCEL_INTERVAL_SECONDS = 0.2
STOPPED = "The command was stopped."

# The column that DELETE, UPDATE and MERGE of Delta return.
AFFECTED = "num_affected_rows"

Description = Sequence[tuple[str, str, None, None, None, None, bool]]


class MissingRelations(Protocol):
    """What happens if a statement needs a relation that the catalog does not have; the adapter knows."""

    def restore(self, spark: SparkSession, schema: str, identifier: str) -> bool:
        """Create the relation; False if it can't be created."""

    def explain_missing(self, schema: str, identifier: str) -> str | None:
        """Why it does not exist and what to do; None if that is not known."""


def end_on_signals() -> None:
    """Let SIGTERM end a command as Ctrl-C does, both without a stack trace.

    On Ctrl-C dbt cancels the running models, and transactions are aborted. SIGTERM alone would leave them to time out.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number, default in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is default:
            signal.signal(number, _end)


def _end(number: int, _: object) -> NoReturn:
    dbt_internals.hide_stack_trace()
    raise KeyboardInterrupt(f"{signal.Signals(number).name}: the command was stopped.")


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


def _label(connection: str) -> str:
    """What progress shows for a connection, which dbt names after a node or after what it needs for itself.

    >>> _label("model.shop.orders.v2"), _label("test.shop.unique_orders_id.5a1f"), _label("list_None_shop")
    ('orders.v2', 'unique_orders_id', 'Reading the catalog')
    """
    kind, *parts = connection.split(".")
    if len(parts) < 2:
        if kind.startswith("list_"):
            return "Reading the catalog"
        return "Changing the catalog" if kind.startswith(("create_", "drop_")) else f"dbt {kind}"
    return ".".join(parts[1:2] if kind == "test" else parts[1:])


class UpsertKafkaConnectionManager(ConnectionManagerHooks):
    """Runs SQL on the Spark of this process."""

    TYPE = "upsert_kafka"
    # The adapter sets it: dbt opens connections with a class method.
    relations: ClassVar[MissingRelations | None] = None

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        if connection.state != ConnectionState.OPEN:
            connection.handle = SessionHandle(connection.credentials, connection.name or "dbt", cls.relations)
            connection.state = ConnectionState.OPEN
        return connection

    def __init__(self, profile: Any, mp_context: SpawnContext) -> None:
        super().__init__(profile, mp_context)
        self._stopped_by: int | None = None
        progress.configure(lines=dbt_internals.wants_progress(profile), colors=dbt_internals.uses_colors(profile))

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        try:
            with self._shown():
                yield
        except DbtRuntimeError:
            raise
        except Exception as error:  # Py4J's and Spark's errors have no common base
            logger.debug(f"Error while running:\n{sql}\n{traceback.format_exc()}")
            raise DbtDatabaseError(self._explained(error) or table_formats.explain(error) or error_line(error)) from error

    def _shown(self) -> AbstractContextManager[None]:
        """Shows the node of this thread as an activity."""
        connection = self.get_if_exists()
        if connection is None or connection.handle is None:
            return nullcontext()
        name = connection.name or ""
        # dbt's own work has no rows to count.
        return progress.activity(_label(name), connection.handle.row_counter if "." in name else None)

    def _explained(self, error: Exception) -> str | None:
        """The message about a relation of this project that does not exist; None for other errors."""
        missing = missing_relation(error)
        hint = self.relations.explain_missing(*missing) if missing and self.relations else None
        # dbt-spark searches messages for the name of the error.
        return f"[{NOT_FOUND}] {'.'.join(missing)} does not exist in the catalog. {hint}" if missing and hint else None

    def execute(
        self, sql: str, auto_begin: bool = False, fetch: bool = False, limit: int | None = None
    ) -> tuple[AdapterResponse, agate.Table]:
        from dbt_common.clients.agate_helper import empty_table

        sql = self.with_query_comment(sql)
        _, cursor = self.add_query(sql, auto_begin)
        with self.exception_handler(sql):
            if fetch:
                table = self.get_result_from_cursor(cursor, limit)
                return self.get_response(cursor), table
            cursor.run()
            return self.get_response(cursor), empty_table()

    @classmethod
    def get_response(cls, cursor: SessionHandle) -> AdapterResponse:
        return AdapterResponse(_message="OK", rows_affected=cursor.rows_affected)

    @classmethod
    def data_type_code_to_name(cls, type_code: Any) -> str:
        # Contracts compare types without precision and scale, as in other adapters.
        return re.sub(r"^decimal\(.*\)$", "decimal", str(type_code))

    def set_connection_name(self, name: str | None = None) -> Connection:
        connection = super().set_connection_name(name)
        # A thread that takes up a node now has no connection that `cancel_open` could have found.
        if self._stopped_by not in (None, threading.get_ident()):
            raise DbtRuntimeError(STOPPED)
        return connection

    def cancel_open(self) -> list[str]:
        """Stop all other threads: those that run a statement, and those that have a node but no connection yet."""
        self._stopped_by = threading.get_ident()
        return super().cancel_open()

    def cancel(self, connection: Connection) -> None:
        if connection.handle is not None:
            connection.handle.cancel()
