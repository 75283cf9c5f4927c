"""The objects of pyspark and Py4J behind a JVM that several processes use: the part of `internals` that `shared_jvm` uses.

Why: pyspark's builder starts a JVM that ends with its process, and one SparkContext per process belongs to one JVM.
Missing: pyspark documents neither how to start a JVM for other processes nor how to attach to one. It reads the address of a
gateway from two environment variables, and `SparkContext` accepts an existing Java context.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dbt.adapters.events.logging import AdapterLogger
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.core.context import DEFAULT_CONFIGS
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

logger = AdapterLogger("upsert_kafka")

GATEWAY_PORT, GATEWAY_SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
COMMAND_VARIABLE = "UPSERT_KAFKA_COMMAND"
"""In the environment of Python workers that only one command uses."""
CANCEL_INTERVAL_SECONDS = 0.05
JOB_TAGS = "spark.job.tags"
"""A property of tasks: the tags of their job, with commas."""


class JvmEndedError(Exception):
    """A shared JVM, or the SparkContext in it, has ended."""


@dataclass(frozen=True)
class StartedJvm:
    """A JVM with a SparkContext, for any number of processes."""

    port: int
    secret: str
    process: int
    stdin: IO[bytes]
    """The JVM ends when the last copy of this pipe is closed."""


def start_jvm(public: Mapping[str, Any], settings: Mapping[str, Any], script: Path | None, log: int) -> StartedJvm:
    """Start a JVM and its SparkContext.

    Args:
        public: settings for its command line, see `internals.launch_jvm`.
        settings: all settings.
        log: the file descriptor for everything that it prints.
    """
    popen: dict[str, Any] = {"stdout": log, "stderr": log, **({"executable": str(script)} if script else {})}
    gateway = launch_gateway(SparkConf(loadDefaults=False).setAll(list(public.items())), popen)
    stdin: IO[bytes] = gateway.proc.stdin
    try:
        configuration = gateway.jvm.SparkConf()
        for name, value in {**DEFAULT_CONFIGS, **settings}.items():
            configuration.set(name, str(value))
        context = gateway.jvm.JavaSparkContext(configuration)
        # The default session: Spark's code falls back to it, so it must not be that of a command, which ends.
        _session_class(gateway).builder().sparkContext(context.sc()).getOrCreate()
        parameters = gateway.java_parameters
        started = StartedJvm(parameters.port, parameters.auth_token, gateway.proc.pid, stdin)
    except BaseException:
        stdin.close()
        raise
    gateway.close()
    return started


@dataclass(frozen=True)
class AttachedSpark:
    """The Spark of a shared JVM in this process: a gateway server of its own, and a session."""

    gateway: Any
    session: SparkSession

    def detach(self) -> None:
        """Let this process have no Spark. `clean_up` frees its part of the JVM when it has ended and starts no more jobs."""
        context: Any = self.session.sparkContext
        shutil.rmtree(context._temp_dir, ignore_errors=True)
        _forget_spark()


def attach(port: int, secret: str, own_state: bool, attached: Callable[[int, str, str | None], None]) -> AttachedSpark:
    """Attach to a JVM of `start_jvm`.

    Args:
        own_state: whether the session gets a catalog, cached tables and global temporary views of its own.
        attached: gets what `clean_up` needs, as soon as there is something to clean up.

    Raises:
        JvmEndedError: the JVM or its SparkContext has ended.
    """
    base = _connect(port, secret)
    own_port, own_secret = start_gateway_server(base)
    base.close()
    attached(own_port, own_secret, None)
    gateway = _connect(own_port, own_secret)
    try:
        session = _session_in(gateway, own_state)
    except BaseException:
        _forget_spark()
        raise
    attached(own_port, own_secret, session._jsparkSession._target_id)
    return AttachedSpark(gateway, session)


def start_gateway_server(gateway: Any) -> tuple[int, str]:
    """Start another gateway server in a JVM; returns its port and secret."""
    server = gateway.jvm.org.apache.spark.api.python.Py4JServer(gateway.jvm.SparkConf())
    server.start()
    return int(server.getListeningPort()), str(server.secret())


def _session_in(gateway: Any, own_state: bool) -> SparkSession:
    default = _default_session(gateway)
    scala_context = default.sparkContext()
    if scala_context.isStopped():
        raise JvmEndedError("the SparkContext was stopped")
    java_context = gateway.jvm.JavaSparkContext.fromSparkContext(scala_context)
    with _signal_handlers():
        # pyspark's handler of Ctrl-C would cancel the jobs of all processes.
        context = SparkContext(conf=SparkConf(_jconf=scala_context.getConf()), gateway=gateway, jsc=java_context)
    cls = _session_class(gateway)
    session = SparkSession(context, cls(scala_context, gateway.jvm.java.util.HashMap()) if own_state else default)
    # pyspark has made it the default of the JVM.
    cls.setDefaultSession(default)
    return session


def _forget_spark() -> None:
    """Let pyspark start a Spark when it needs one."""
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def clean_up(port: int, secret: str, session_id: str | None, tag: str) -> None:
    """Cancel what a process that has ended still runs in a shared JVM, wait until that has ended, and free what it had there.

    The caller limits the time: a task may take long to end.

    Args:
        port: of its own gateway server.
        session_id: of its session in that server; None if it had none.
        tag: of its jobs.

    Raises:
        JvmEndedError: there is no such server.
    """
    gateway = _connect(port, secret)
    default = _default_session(gateway)
    context, state = default.sparkContext(), None
    if session_id is not None:
        state = JavaObject(session_id, gateway._gateway_client).sharedState()
    is_own = state is not None and state.hashCode() != default.sharedState().hashCode()
    while True:
        for query in _values(state.activeStreamingQueries()) if state is not None and is_own else ():
            query.stop()
        # A statement may have several jobs, one after the other.
        context.cancelJobsWithTag(tag)
        if not runs_statements(gateway) and not has_tasks(gateway, tag):
            break
        time.sleep(CANCEL_INTERVAL_SECONDS)
    if state is not None and is_own:
        state.cacheManager().clearCache()
        # Each state adds a listener that would get all events until the JVM ends.
        context.removeSparkListener(state.statusStore().listener().get())
    stop_workers(gateway.jvm)
    gateway.shutdown()


def runs_statements(gateway: Any) -> bool:
    """Whether the gateway server of a process that has ended runs a statement of that process: it has more connections than ours.

    Missing: Py4J closes the connection of a statement when the statement has ended, and has no list of connections.
    """
    field = gateway.jvm.java.lang.Class.forName("py4j.GatewayServer").getDeclaredField("connections")
    field.setAccessible(True)
    return int(field.get(gateway.java_gateway_server).size()) > 1


def has_tasks(gateway: Any, tag: str) -> bool:
    """Whether a task runs for a job with this tag. Cancelled jobs end at once, and their tasks later.

    Missing: Spark's status has a delay.
    """
    scheduler = _default_session(gateway).sparkContext().taskScheduler()
    found = [manager.taskSet().properties() for manager in _values(scheduler.taskIdToTaskSetManager())]
    return any(tag in (properties.getProperty(JOB_TAGS) or "").split(",") for properties in found if properties is not None)


def _values(java_map: Any) -> list[Any]:
    """The values of a Java map. Py4J's `values` finds none whose key is a Long."""
    return [entry.getValue() for entry in java_map.entrySet()]


def use_new_workers(spark: SparkSession) -> None:
    """Let the user's functions of this process run in Python workers that no other process has used."""
    spark.sparkContext.environment[COMMAND_VARIABLE] = str(os.getpid())


def stop_workers(jvm: Any) -> None:
    """End the Python workers of `use_new_workers` whose command has ended, or is this one.

    Missing: Spark ends workers only with the SparkContext; the map of them is private.
    """
    try:
        environment = jvm.org.apache.spark.SparkEnv.get()
        field = environment.getClass().getDeclaredField("pythonWorkers")
        field.setAccessible(True)
        factories = field.get(environment)
        for key in list(jvm.scala.jdk.javaapi.CollectionConverters.asJava(factories.keySet().toSeq())):
            _, found, command = key.toString().partition(f"{COMMAND_VARIABLE} -> ")
            process = int("".join(c for c in command[:10].partition(",")[0] if c.isdigit()) or 0) if found else 0
            if found and (process == os.getpid() or not is_running(process)):
                factories.remove(key).get().stop()
    except Py4JError as error:
        logger.debug(f"The Python workers of this command were not stopped: {error}")


def is_running(process: int) -> bool:
    """Whether there is a process with this id that has not ended."""
    try:
        os.kill(process, 0)
        # In a container without an init process nobody waits for orphans. macOS has no such files.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return True


def _connect(port: int, secret: str) -> Any:
    """A gateway to a JVM that runs already.

    Raises:
        JvmEndedError: it does not run any more.
    """
    os.environ |= {GATEWAY_PORT: str(port), GATEWAY_SECRET: secret}
    try:
        return launch_gateway()
    except (Py4JNetworkError, OSError) as error:
        raise JvmEndedError(str(error)) from error
    finally:
        del os.environ[GATEWAY_PORT], os.environ[GATEWAY_SECRET]


def _session_class(gateway: Any) -> Any:
    return SparkSession._get_j_spark_session_class(gateway.jvm)


def _default_session(gateway: Any) -> Any:
    return _session_class(gateway).getDefaultSession().get()


@contextmanager
def _signal_handlers() -> Iterator[None]:
    """Restore the handler of SIGINT after the block."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)
