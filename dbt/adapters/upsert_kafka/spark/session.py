"""The Spark of this process: one, started on first use and stopped at exit.

`settings` has its settings, `connect` opens sessions of Spark Connect, `connections` runs dbt's statements.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyspark
from dbt.adapters.events.logging import AdapterLogger
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import java, kafka_properties, tested_versions
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import reach
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings, export_secrets
from dbt.adapters.upsert_kafka.spark import connect, internals, settings
from dbt.adapters.upsert_kafka.spark.project_catalog import ProjectCatalog
from dbt.adapters.upsert_kafka.spark.restoring_session import RestoringSession

logger = AdapterLogger("upsert_kafka")
internals.disable_query_context_loggers()

JVM_WARNING = b"WARNING: Using incubator modules"

_lock = threading.Lock()
_session: SparkSession | None = None
_connect_sessions: list[SparkSession] = []
_catalog: ProjectCatalog | None = None
"""None if the profile names another catalog."""


def get_session(credentials: UpsertKafkaCredentials) -> SparkSession:
    """Return the Spark session of this process and start it on first use; safe to call from every thread."""
    global _session
    with _lock:
        if _session is None:
            with ThreadPoolExecutor(1) as background:
                # Views read topics, so Spark needs the embedded broker. Both take seconds to start: start them at the same time.
                broker = background.submit(_reach_kafka, credentials)
                _session = _start(credentials) if credentials.remote is None else _connect(credentials)
                broker.result()
            atexit.register(stop)
        return _session


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
    global _session, _catalog
    while _connect_sessions:
        _connect_sessions.pop().stop()
    if _session is not None:
        try:
            _session.stop()
        except (PySparkException, OSError) as error:
            logger.debug(f"Spark had ended before it was stopped: {error!r}")
        _session = None
    if _catalog is not None:
        _catalog.close()
        _catalog = None


def _reach_kafka(credentials: UpsertKafkaCredentials) -> None:
    """Start the embedded broker if it is used, and begin to check that Kafka answers."""
    reach.begin(KafkaSettings.of(credentials).python_client)


def _connect(credentials: UpsertKafkaCredentials) -> SparkSession:
    spark = connect.open_session(credentials, settings.connect_settings(credentials))
    connect.check(spark, credentials, settings.kafka_jars(spark.version))
    return spark


def _start(credentials: UpsertKafkaCredentials) -> SparkSession:
    global _catalog
    if warning := tested_versions.warning(java.major_version(), pyspark.__version__):
        logger.warning(warning)
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
        artifacts = Path.cwd() / "artifacts"
        is_users = artifacts.exists()
        with _without_jvm_warning():
            internals.launch_jvm({name: value for name, value in spark_settings.items() if not settings.is_secret(name)})
            session = SparkSession.builder.config(map=spark_settings).getOrCreate()
        if not is_users:
            internals.delete_empty_folder_at_exit(artifacts)
        if catalog is not None:
            catalog.attach(session)
        else:
            # The first statement opens a metastore. Here its error is reported as one; in a model it would not be.
            session.sql("show databases").collect()
    except Exception as error:  # Py4J's and Spark's errors have no common base
        if catalog is not None:
            catalog.close()
        if isinstance(error, UpsertKafkaError):
            raise
        logger.debug(f"Spark did not start: {error!r}")
        raise UpsertKafkaError(_start_failure(error, credentials)) from error
    kafka_properties.use_java_client(internals.java_kafka_client(session))
    if newer := [f"'kafka: {name}' {why}" for name in credentials.kafka if (why := kafka_properties.newer_than_client(name))]:
        session.stop()
        if catalog is not None:
            catalog.close()
        raise UpsertKafkaError("; ".join(newer))
    _catalog = catalog
    return session


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
def _without_jvm_warning() -> Iterator[None]:
    """Filter the JVM's warning about incubator modules from stderr; the rest, such as the progress bar, passes through."""
    read_end, write_end = os.pipe()
    stderr = os.dup(2)

    def forward() -> None:
        while text := os.read(read_end, 65536):
            os.write(stderr, b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(JVM_WARNING)))

    sys.stderr.flush()
    os.dup2(write_end, 2)
    os.close(write_end)
    threading.Thread(target=forward, daemon=True).start()
    try:
        yield
    finally:
        os.dup2(stderr, 2)
