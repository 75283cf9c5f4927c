"""dbt's connections, each with a Spark session of its own: temporary views and settings are not shared.

Leaves to `spark.handle` how a connection runs a statement. It is imported when a connection is used: `dbt parse` uses none.
"""

from __future__ import annotations

import re
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.context import SpawnContext
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

from dbt.adapters.upsert_kafka import dbt_internals, progress
from dbt.adapters.upsert_kafka.dbt_internals import ConnectionManagerHooks
from dbt.adapters.upsert_kafka.errors import STOPPED
from dbt.adapters.upsert_kafka.spark import table_formats

if TYPE_CHECKING:
    import agate

    from dbt.adapters.upsert_kafka.spark.handle import MissingRelations, SessionHandle

logger = AdapterLogger("upsert_kafka")


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
            from dbt.adapters.upsert_kafka.spark.handle import SessionHandle

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
            from dbt.adapters.upsert_kafka.spark.handle import error_line

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
        from dbt.adapters.upsert_kafka.spark.restoring_session import NOT_FOUND, missing_relation

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
