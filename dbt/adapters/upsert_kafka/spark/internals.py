"""The only module that uses private or undocumented parts of pyspark and Py4J.

Each function says why it exists and which public way is missing. tests/unit/spark/test_internals.py fails with a sentence if a
release of pyspark moved one of these parts. kafka_client/keystores.py starts a JVM of its own with Py4J's public gateway.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from subprocess import Popen
from typing import Any, TypeVar

from py4j.java_gateway import JavaClass
from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka.kafka_properties import JavaClient

Session = TypeVar("Session", bound=SparkSession)

QUERY_CONTEXT_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def launch_jvm(settings: Mapping[str, Any]) -> None:
    """Start the driver's JVM with these settings on its command line.

    Why: every user of the machine can read a command line, so the settings with secrets must not be on it.
    Missing: `SparkSession.builder` starts the JVM itself and puts all settings on its command line.
    """
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))


def delete_empty_folder_at_exit(folder: Path) -> None:
    """Let the JVM delete a folder when it exits, if the folder is empty then.

    Why: Spark creates the folder `artifacts` in the working directory, and leaves it there empty.
    Missing: Spark 4.0 has no setting for it.
    """
    jvm = SparkContext._jvm
    assert jvm is not None, "Spark runs in no JVM of this process"
    jvm.java.io.File(str(folder)).deleteOnExit()


def jvm_process() -> Popen[bytes]:
    """Return the process of the driver's JVM.

    Why: a JVM writes its class archive when it exits, and the caller must wait for the file.
    Missing: `SparkSession.stop` ends the session, not the JVM. pyspark has no public handle of the process.
    """
    gateway = SparkContext._gateway
    assert gateway is not None, "Spark runs in no JVM of this process"
    return gateway.proc


def java_kafka_client(session: SparkSession) -> JavaClient | None:
    """Version and properties of the Kafka client in the jars of a Spark that this process started; None without such a client.

    Why: a property that Kafka added later has no effect on an older client, and Spark does not report that.
    Missing: pyspark has no public way to call a class of a jar.
    """
    jvm: Any = session._jvm
    client = jvm.org.apache.kafka.clients
    configs = [client.producer.ProducerConfig, client.consumer.ConsumerConfig, client.admin.AdminClientConfig]
    if not all(isinstance(config, JavaClass) for config in configs):
        return None
    names = frozenset(str(name) for config in configs for name in config.configNames())
    return JavaClient(str(jvm.org.apache.kafka.common.utils.AppInfoParser.getVersion()), names)


def new_session(shared: SparkSession, cls: type[Session]) -> Session:
    """Return a session as `SparkSession.newSession` does, of a class of ours.

    Why: the class adds to `sql` and `table`, see `restoring_session`.
    Missing: the constructor takes the JVM's session, which is private, and Spark has no hook for relations that do not exist.
    """
    return cls(shared.sparkContext, shared._jsparkSession.newSession())


def unpersist_checkpoint(frame: DataFrame) -> None:
    """Free the blocks of a frame that `DataFrame.localCheckpoint` returned, without waiting for it.

    Why: otherwise the blocks stay until Java's garbage collection, and Spark writes them to disk if the next model needs memory.
    Missing: `DataFrame.unpersist` frees cached frames only. Spark has no public way to free a local checkpoint.
    """
    plan: Any = frame._jdf.queryExecution().logical()
    plan.rdd().unpersist(False)


def disable_query_context_loggers() -> None:
    """Stop pyspark from printing the errors that it raises.

    Why: dbt reports a model's error. pyspark would print it a second time on stderr, with a Java stack trace.
    Missing: pyspark has no setting for this, and the names of the loggers are not documented.
    """
    for name in QUERY_CONTEXT_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True


def set_connect_retries(spark: Any, max_retries: int | None = None) -> None:
    """Set how often a Spark Connect client repeats a request that failed; None for pyspark's default.

    Args:
        spark: a session of Spark Connect.

    Why: by default the client retries for ten minutes before it reports that no server answers.
    Missing: `SparkSession.builder.remote` has no parameter for it, and the module of the policies is not documented.

    Raises:
        ImportError: the packages of Spark Connect are not installed.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    policy = DefaultPolicy() if max_retries is None else DefaultPolicy(max_retries=max_retries)
    spark.client.set_retry_policies([policy])
