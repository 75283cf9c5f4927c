"""The Spark of this process: one, started on first use and stopped at exit.

`settings` has its settings, `connect` opens sessions of Spark Connect, `connections` runs dbt's statements.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
from dbt.adapters.events.logging import AdapterLogger
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import java, kafka_properties, progress, tested_versions
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.dbt_warnings import warn
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings, export_secrets
from dbt.adapters.upsert_kafka.spark import connect, internals, launcher, master, settings, shared_jvm
from dbt.adapters.upsert_kafka.spark.project_catalog import ProjectCatalog
from dbt.adapters.upsert_kafka.spark.restoring_session import RestoringSession

logger = AdapterLogger("upsert_kafka")
internals.disable_query_context_loggers()
internals.convert_numpy_without_pandas()

JVM_WARNING = b"WARNING: Using incubator modules"
MOST_SECONDS_BEFORE_JVM = 0.3
"""For which others wait until the JVM starts. What comes before it takes milliseconds, but half a second beside threads that use
Python all the time. Jars that have to be downloaded take longer, and dbt reads the project meanwhile."""

_lock = threading.Lock()
_session: SparkSession | None = None
_early: _EarlyStart | None = None
"""A start that nobody has asked for yet."""
_connect_sessions: list[SparkSession] = []
_catalog: ProjectCatalog | None = None
"""None if the profile names another catalog."""


def get_session(credentials: UpsertKafkaCredentials) -> SparkSession:
    """Return the Spark session of this process and start it on first use; safe to call from every thread."""
    global _session, _early
    with _lock:
        if _session is None:
            early, _early = _early, None
            if early is not None and early.identity != _identity(credentials):
                # dbt ran in this process before, for another project or target, and ended before it needed Spark.
                early.discard()
                early = None
            with progress.activity(_label(credentials)):
                _session = early.session() if early is not None else _open(credentials, threading.Event())
            atexit.register(_stop_at_exit)
        return _session


def start_early(credentials: UpsertKafkaCredentials, then: Callable[[], None]) -> None:
    """Start Spark and the embedded broker in the background, for a command that will need them. `get_session` raises errors.

    Args:
        then: is called when Kafka answers, in a thread of its own.
    """
    global _early
    if not settings.is_local(credentials):
        return
    with _lock:
        if _session is None and _early is None:
            _early = _EarlyStart(credentials, then)


class _EarlyStart:
    """A start of Spark in a thread. A process that ends does not wait for it: the JVM and the broker end with the process."""

    def __init__(self, credentials: UpsertKafkaCredentials, then: Callable[[], None]) -> None:
        self.identity = _identity(credentials)
        self._result: Future[SparkSession] = Future()
        jvm_starts = threading.Event()
        threading.Thread(target=self._run, args=(credentials, then, jvm_starts), name="start of Spark", daemon=True).start()
        jvm_starts.wait(MOST_SECONDS_BEFORE_JVM)

    def session(self) -> SparkSession:
        """The session, or the error of its start."""
        return self._result.result()

    def discard(self) -> None:
        try:
            _stop(self._result.result())
        except (UpsertKafkaError, PySparkException, OSError) as error:
            logger.debug(f"A Spark that was not needed did not start: {error!r}")

    def _run(self, credentials: UpsertKafkaCredentials, then: Callable[[], None], jvm_starts: threading.Event) -> None:
        try:
            with progress.activity(_label(credentials)):
                self._result.set_result(_open(credentials, jvm_starts, then))
        except BaseException as error:  # for the thread that needs the session
            self._result.set_exception(error)


def _label(credentials: UpsertKafkaCredentials) -> str:
    return f"Starting Spark ({credentials.server or credentials.master or 'local'})"


def _identity(credentials: UpsertKafkaCredentials) -> tuple[UpsertKafkaCredentials, Path]:
    return credentials, credentials.state_dir


def _open(
    credentials: UpsertKafkaCredentials, jvm_starts: threading.Event, then: Callable[[], None] | None = None
) -> SparkSession:
    """Start Spark and the embedded broker.

    Args:
        jvm_starts: is set when the JVM starts.
        then: is called when Kafka answers, in a thread of its own.
    """
    # Views read topics, so Spark needs the embedded broker. Both take seconds to start: start them at the same time.
    broker: Future[None] = Future()

    def reach_kafka() -> None:
        jvm_starts.wait(MOST_SECONDS_BEFORE_JVM)
        try:
            _reach_kafka(credentials)
        except BaseException as error:  # for this thread
            broker.set_exception(error)
            return
        broker.set_result(None)
        if then is not None:
            then()

    threading.Thread(target=reach_kafka, name="start of Kafka", daemon=True).start()
    if credentials.remote is None:
        session = _start(credentials, jvm_starts)
    else:
        jvm_starts.set()
        session = _connect(credentials)
    broker.result()
    return session


def new_session(credentials: UpsertKafkaCredentials) -> SparkSession:
    """Return a session on the Spark of this process, with temporary views and settings of its own."""
    shared = get_session(credentials)
    if credentials.remote is None:
        restoring = internals.new_session(shared, RestoringSession)
        restoring.definitions = _catalog
        return restoring
    session = connect.open_session(credentials, settings.connect_settings(credentials))
    _connect_sessions.append(session)
    return session


def stop() -> None:
    """Stop the Spark of this process if it was started."""
    global _session, _early
    while _connect_sessions:
        _connect_sessions.pop().stop()
    session, _session = _session, None
    early, _early = _early, None
    if early is not None:
        early.discard()
    if session is not None:
        _stop(session)


def _stop_at_exit() -> None:
    """Stop Spark, unless nobody has to wait for that: the JVM of this process ends after it, and then stops Spark itself."""
    try:
        # In a container the first process takes all others with it.
        ends_all = os.getpid() == 1 or os.getppid() == 1
        if _session is not None and not shared_jvm.is_attached() and not _connect_sessions and not ends_all:
            context = _session.sparkContext
            if master.is_local(str(context.master)) and not context.statusTracker().getActiveJobsIds():
                return
    except (PySparkException, Py4JError, OSError, AttributeError) as error:
        # AttributeError: a Python model has stopped the context, which has no JVM any more.
        logger.debug(f"Spark had ended before the process: {error!r}")
    stop()


def _stop(session: SparkSession) -> None:
    global _catalog
    try:
        if shared_jvm.is_attached():
            shared_jvm.detach()
        else:
            session.stop()
    except (PySparkException, OSError) as error:
        logger.debug(f"Spark had ended before it was stopped: {error!r}")
    if _catalog is not None:
        _catalog.close()
        _catalog = None


def _reach_kafka(credentials: UpsertKafkaCredentials) -> None:
    """Start the embedded broker if it is used, and begin to check that Kafka answers."""
    # Here, in the thread that needs it: it imports kafka-python, and the JVM's start must not wait for that.
    from dbt.adapters.upsert_kafka.kafka_client import reach

    is_embedded = credentials.bootstrap_servers == "embedded"
    with progress.activity(
        "Starting Kafka (embedded)" if is_embedded else f"Connecting to Kafka ({credentials.bootstrap_servers})"
    ):
        kafka = KafkaSettings.of(credentials)
        reach.begin(lambda: (kafka.python_client(), kafka.user))


def _connect(credentials: UpsertKafkaCredentials) -> SparkSession:
    spark = connect.open_session(credentials, settings.connect_settings(credentials))
    if warning := tested_versions.warning(None, spark.version):
        warn(warning)
    connect.check(spark, credentials, settings.kafka_jars(spark.version))
    return spark


def _start(credentials: UpsertKafkaCredentials, jvm_starts: threading.Event) -> SparkSession:
    global _catalog
    if warning := tested_versions.warning(java.major_version(), pyspark.__version__):
        warn(warning)
    secrets = export_secrets(credentials)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = settings.worker_python(credentials)
    spark_settings = settings.driver_settings(credentials)
    catalog = ProjectCatalog(credentials.state_dir) if settings.uses_project_catalog(credentials) else None
    if not settings.is_local(credentials):
        executor_environment = {f"spark.executorEnv.{variable}": value for variable, value in secrets.items()}
        spark_settings = {**executor_environment, **spark_settings}
    kafka_properties.use_java_client(None)
    try:
        public = settings.without_secrets(spark_settings)
        script = launcher.script_of(public)
        jvm_starts.set()
        session = _shared_session(credentials, spark_settings, secrets) or _own_session(spark_settings, public, script)
        internals.delete_artifacts_folder(session)
        if catalog is not None:
            catalog.attach(session, lock_jvm=not shared_jvm.is_attached())
        else:
            # The first statement opens a metastore. Here its error is reported as one; in a model it would not be.
            session.sql("show databases").collect()
    except Exception as error:  # Py4J's and Spark's errors have no common base
        if catalog is not None:
            catalog.close()
        if isinstance(error, UpsertKafkaError):
            raise
        logger.debug(f"Spark did not start: {error}")
        raise UpsertKafkaError(_start_failure(error, credentials)) from error
    kafka_properties.use_java_client(internals.java_kafka_client(session))
    if newer := [f"'kafka: {name}' {why}" for name in credentials.kafka if (why := kafka_properties.newer_than_client(name))]:
        _catalog = catalog
        _stop(session)
        raise UpsertKafkaError("; ".join(newer))
    _catalog = catalog
    return session


def _own_session(spark_settings: dict[str, Any], public: dict[str, Any], script: Path | None) -> SparkSession:
    """A session in a JVM of this process.

    Args:
        public: the settings that may be on a command line.
    """
    with _without_jvm_warning() as output:
        internals.launch_jvm(public, script, output)
    return SparkSession.builder.config(map=spark_settings).getOrCreate()


def _shared_session(
    credentials: UpsertKafkaCredentials, spark_settings: dict[str, Any], secrets: dict[str, str]
) -> SparkSession | None:
    """A session in the resident's JVM; None without one. A cluster's resources are not kept for the next command."""
    if not shared_jvm.is_offered() or not settings.is_local(credentials):
        return None
    mask = os.umask(0o077)
    os.umask(mask)
    identity = {
        **shared_jvm.referenced_variables([*credentials.kafka.values(), *spark_settings.values()], os.environ),
        **secrets,
        "the project's folder": str(credentials.state_dir),
        # Of relative paths in SQL and in settings.
        "the working directory": os.getcwd(),
        "the umask": str(mask),
        "Java": f"{java.find_java()} {java.build()}",
    }
    # A catalog in memory ends with the command, as with plain dbt. A Hive metastore may allow only one client in a JVM.
    own_state = spark_settings[settings.CATALOG] == "in-memory"
    return shared_jvm.open_session(spark_settings, identity, own_state)


def _start_failure(error: Exception, credentials: UpsertKafkaCredentials) -> str:
    text = str(error)
    if "XSDB6" in text or "Another instance of Derby" in text:
        return (
            "Another process uses the Derby database that your profile names as metastore, and Derby allows one at a time. "
            "Wait until it has ended, or remove it from the profile to use the project's own catalog."
        )
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    master = credentials.master or "local[*]"
    return f"Spark did not start with master '{master}': {first[:300]}. Check master and spark in your profile."


@contextmanager
def _without_jvm_warning() -> Iterator[int]:
    """Yield the output of a JVM: its warning about incubator modules is left out, the rest goes to this process's stderr."""
    read_end, write_end = os.pipe()

    def forward() -> None:
        while text := os.read(read_end, 65536):
            with suppress(OSError):  # nobody reads stderr any more; the JVM must not wait for it
                os.write(2, b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(JVM_WARNING)))
        os.close(read_end)

    threading.Thread(target=forward, name="output of Spark", daemon=True).start()
    try:
        yield write_end
    finally:
        os.close(write_end)
