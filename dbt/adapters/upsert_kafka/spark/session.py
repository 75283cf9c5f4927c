"""One Spark per process: started once, quiet, with the Kafka and Avro jars of its own version.

Leaves to `connections` how dbt's statements run on it.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from dbt.adapters.events.logging import AdapterLogger
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import class_archive, connect, java
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings, export_secrets

logger = AdapterLogger("upsert_kafka")
# Errors reach the user as the model's; pyspark would print them too, with Java's stack.
for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    PySparkLogger.getLogger(_name).disabled = True

SCALA = "2.13"
# Already inside Spark; a second copy would only be fetched, not used.
INSIDE_SPARK = (
    "com.github.luben",
    "com.google.code.findbugs",
    "org.apache.hadoop",
    "org.lz4",
    "org.scala-lang",
    "org.slf4j",
    "org.xerial.snappy",
)
# `file_format: delta` in a profile needs nothing else.
DELTA_JARS = [f"io.delta:delta-spark_{SCALA}:4.0.0"]
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
OF_A_SESSION = {
    # A model must not be able to select the environment, which holds secrets; dbt has variables of its own.
    "spark.sql.variable.substitute": "false",
    # A cast that fails must fail: a NULL instead would reach the topic, or delete a key.
    "spark.sql.ansi.enabled": "true",
}
OF_A_DRIVER = {
    # Else every step of a query asks Python's stack where it stands, which takes longer than the step.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
METASTORE_SETTINGS = (
    "spark.hadoop.hive.metastore.uris",
    "spark.hadoop.javax.jdo.option.ConnectionURL",
    "spark.sql.catalogImplementation",
)
JVM_OPTIONS = "spark.driver.extraJavaOptions"
SECRET = "(?i)secret|password|passphrase|token|credential|jaas|(access|account|api)[._]?key"
LAUNCH_NOISE = b"WARNING: Using incubator modules"
LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} Spark %p %c{1}: %m%n%ex{0}
# What goes wrong in a job reaches the user as the model's error, once.
logger.spark.name = org.apache.spark
logger.spark.level = off
logger.hive.name = org.apache.hadoop.hive
logger.hive.level = off
logger.hive2.name = hive
logger.hive2.level = off
logger.nucleus.name = DataNucleus
logger.nucleus.level = off
# As loud as the root, or Spark announces the difference.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.kafka.name = org.apache.kafka
logger.kafka.level = off
"""

_lock = threading.Lock()
_session: SparkSession | None = None
_others: list[SparkSession] = []
_catalog_lock: IO[str] | None = None


def kafka_jars(spark_version: str) -> list[str]:
    """Coordinates of the jars that Spark needs to speak Kafka and Avro."""
    names = ("spark-sql-kafka-0-10", "spark-avro")
    return [f"org.apache.spark:{name}_{SCALA}:{spark_version}" for name in names]


def get_session(credentials: UpsertKafkaCredentials) -> SparkSession:
    """The process's Spark session, started on first use; safe to call from every thread."""
    global _session
    with _lock:
        if _session is None:
            with ThreadPoolExecutor(1) as background:
                # Views read the topic, so whoever has Spark has the broker; both take seconds to start, so both at once.
                broker = background.submit(KafkaSettings.of, credentials)
                _session = _start(credentials) if credentials.remote is None else _connect(credentials)
                broker.result()
            atexit.register(stop)
        return _session


def new_session(credentials: UpsertKafkaCredentials) -> SparkSession:
    """The process's Spark with temporary views and settings of its own."""
    shared = get_session(credentials)
    if credentials.remote is None:
        return shared.newSession()
    another = connect.open_session(credentials, {**OF_A_SESSION, **credentials.spark})
    _others.append(another)
    return another


def is_local(credentials: UpsertKafkaCredentials) -> bool:
    """Whether Spark runs inside this process."""
    return credentials.remote is None and bool(re.match(r"local(\[|$)", credentials.master or "local"))


def _connect(credentials: UpsertKafkaCredentials) -> SparkSession:
    spark = connect.open_session(credentials, {**OF_A_SESSION, **credentials.spark})
    connect.check(spark, credentials, kafka_jars(spark.version))
    return spark


def _start(credentials: UpsertKafkaCredentials) -> SparkSession:
    import pyspark

    java.find_java()
    secrets = export_secrets(credentials)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = _worker_python(credentials)
    settings = _settings(credentials, pyspark.__version__)
    if settings["spark.sql.catalogImplementation"] == "hive" and not any(
        name in credentials.spark for name in METASTORE_SETTINGS
    ):
        settings |= _project_catalog(credentials.state_dir)
    if not is_local(credentials):
        settings |= {f"spark.executorEnv.{variable}": value for variable, value in secrets.items()}
    # JVM options of the profile come on top of ours, not in their place.
    options = [settings[JVM_OPTIONS], class_archive.options(), credentials.spark.get(JVM_OPTIONS, "")]
    settings |= {**credentials.spark, JVM_OPTIONS: " ".join(options).strip()}
    try:
        with _without_launch_noise():
            _launch({name: value for name, value in settings.items() if not _is_secret(name)})
            session = SparkSession.builder.config(map=settings).getOrCreate()
        # The first statement boots the catalog; better here, with a message of its own, than inside a model.
        session.sql("show databases").collect()
    except Exception as error:  # Py4J's and Spark's errors have no common base
        logger.debug(f"Spark did not start: {error!r}")
        raise UpsertKafkaError(_why_not_started(error, credentials)) from error
    return session


def _worker_python(credentials: UpsertKafkaCredentials) -> str:
    """The Python of Spark's workers: this one on this machine, on a cluster what Spark's own setting or variable says."""
    if credentials.remote is None and _on_this_machine(credentials):
        return sys.executable
    return credentials.spark.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or "python3"


def _launch(settings: Mapping[str, Any]) -> None:
    """Start the JVM, whose command line everybody on the machine can read, with these; it is told the others when it is up."""
    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))


def _is_secret(setting: str) -> bool:
    return not setting.startswith("spark.driver.") and bool(re.search(SECRET, setting))


@contextmanager
def _without_launch_noise() -> Iterator[None]:
    """Start the JVM with a stderr that loses its greeting and passes on the rest, such as the progress bar."""
    read_end, write_end = os.pipe()
    stderr = os.dup(2)

    def forward() -> None:
        while text := os.read(read_end, 65536):
            os.write(stderr, b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(LAUNCH_NOISE)))

    sys.stderr.flush()
    os.dup2(write_end, 2)
    os.close(write_end)
    threading.Thread(target=forward, daemon=True).start()
    try:
        yield
    finally:
        os.dup2(stderr, 2)


def _settings(credentials: UpsertKafkaCredentials, version: str) -> dict[str, Any]:
    log4j = java.cache_dir() / "log4j2.properties"
    if not log4j.is_file() or log4j.read_text() != LOG4J:
        log4j.parent.mkdir(parents=True, exist_ok=True)
        log4j.write_text(LOG4J)
    delta = credentials.file_format == "delta"
    jars = credentials.jars
    if jars is None:
        fetched = java.fetch_jars("spark-kafka", kafka_jars(version), INSIDE_SPARK)
        fetched += java.fetch_jars("delta", DELTA_JARS, (*INSIDE_SPARK, "org.antlr")) if delta else []
        jars = [str(jar) for jar in fetched]
    missing = [jar for jar in jars if not Path(jar).is_file()]
    if missing:
        raise UpsertKafkaError(f"jars in your profile name files that are not there: {', '.join(missing)}")
    return {
        "spark.master": credentials.master or "local[*]",
        "spark.app.name": "dbt-upsert-kafka",
        "spark.jars": ",".join(jars),
        "spark.ui.enabled": "false",
        # What Spark hides in its UI, its event log and its plans: its own default and more.
        "spark.redaction.regex": SECRET,
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower(),
        "spark.sql.catalogImplementation": "hive",
        **(local_settings() if _on_this_machine(credentials) else {}),
        **OF_A_SESSION,
        **OF_A_DRIVER,
        **(DELTA_SETTINGS if delta else {}),
        JVM_OPTIONS: f"-Dlog4j2.configurationFile={log4j.as_uri()} -Dderby.stream.error.file=/dev/null",
    }


def _on_this_machine(credentials: UpsertKafkaCredentials) -> bool:
    """Whether Spark's workers are here; local-cluster has processes of its own, but here."""
    return (credentials.master or "local").startswith("local")


def local_settings() -> dict[str, str]:
    """What suits a Spark on one machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        # As Java by itself would take. Spark's 1 GB is for drivers that leave the work to others.
        "spark.driver.memory": f"{max(1024, memory // 4 // 2**20)}m",
        # Every task of a shuffle writes as many files, and 200 are for clusters.
        "spark.sql.shuffle.partitions": str(max(16, 2 * (os.cpu_count() or 1))),
        # A few models have more pieces of generated code than the 100 that Spark keeps, and lost ones are compiled again.
        "spark.sql.codegen.cache.maxEntries": "1000",
    }


def _project_catalog(state_dir: Path) -> dict[str, str]:
    """Keep catalog and tables in the project's folder, for one process at a time (Derby allows no more)."""
    global _catalog_lock
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    _catalog_lock = open(state_dir / "catalog.lock", "w")  # noqa: SIM115
    try:
        fcntl.flock(_catalog_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UpsertKafkaError(
            f"Another dbt process uses this project's Spark catalog ('{state_dir / 'metastore'}'), and it allows one at a time: "
            "wait for it to end, or point spark.hadoop.hive.metastore.uris in your profile to a shared metastore"
        ) from error
    return {
        "spark.sql.warehouse.dir": str(state_dir / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={state_dir / 'metastore'};create=true",
    }


def _why_not_started(error: Exception, credentials: UpsertKafkaCredentials) -> str:
    text = str(error)
    if "XSDB6" in text or "Another instance of Derby" in text:
        return "Another process uses this project's Spark catalog, and Derby allows one at a time: wait for it to end"
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    master = credentials.master or "local[*]"
    return f"Spark did not start with master '{master}': {first[:300]}; check master and spark in your profile"


def stop() -> None:
    """End the process's Spark, if there is one."""
    global _session
    while _others:
        _others.pop().stop()
    if _session is not None:
        try:
            _session.stop()
        except (PySparkException, OSError) as error:
            logger.debug(f"Spark ended before it was stopped: {error!r}")
        _session = None
