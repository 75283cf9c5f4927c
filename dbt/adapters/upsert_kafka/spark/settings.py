"""The settings of a Spark that this adapter starts: jars, memory, logging, catalog, and which settings are secret.

Leaves to `session` when Spark starts. Settings of the profile win over these.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark

from dbt.adapters.upsert_kafka import java, tested_versions
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import JarsNotFoundError, UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_properties import MSK_IAM
from dbt.adapters.upsert_kafka.spark import class_archive, installation, master, project_catalog, time_zone

SCALA = "2.13"
# Spark ships these itself; a second copy would be downloaded and not used.
INSIDE_SPARK = (
    "com.github.luben",
    "com.google.code.findbugs",
    "org.apache.hadoop",
    "org.lz4",
    "org.scala-lang",
    "org.slf4j",
    "org.xerial.snappy",
)
# A profile with `file_format: delta` gets the jars and the settings of Delta Lake.
DELTA_JARS = [f"io.delta:delta-spark_{SCALA}:4.0.0"]
# A profile with `sasl.mechanism: AWS_MSK_IAM` gets the login module of AWS, with its dependencies inside.
MSK_IAM_JAR = "software.amazon.msk:aws-msk-iam-auth:2.3.2:jar:all"
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
SESSION_SETTINGS = {
    # A model must not be able to select environment variables, because some contain secrets. dbt has variables of its own.
    "spark.sql.variable.substitute": "false",
    # A cast that fails must be an error. A NULL in its place would be published, or would delete a key.
    "spark.sql.ansi.enabled": "true",
    # Otherwise the time zone of the machine, and the same SELECT would publish other timestamps on another machine.
    time_zone.SETTING: "UTC",
}
# The same for what Java and Scala code takes from the machine: time zone, locale and character set.
MACHINE_OPTIONS = "-Duser.timezone=UTC -Duser.language=en -Duser.country=US -Dfile.encoding=UTF-8"
DRIVER_SETTINGS = {
    # Otherwise every DataFrame operation inspects Python's call stack, which takes longer than the operation.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
# Java's defaults suit servers that run for days. In a command of seconds its optimizing compiler takes a core from the command:
# a method is optimized after ten times as many calls.
COMMAND_JVM_OPTIONS = "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000"
# Java's default G1 avoids long pauses, and takes more CPU time. Java does not start with two collectors.
GARBAGE_COLLECTOR = "-XX:+UseParallelGC"
# An option that names a collector, or a file of options, which may.
COLLECTOR = re.compile(r"-XX:[+-]Use\w+GC\b|-XX:(Flags|VMOptionsFile)=|(^|\s)@")
JVM_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
CATALOG = "spark.sql.catalogImplementation"
METASTORE_SETTINGS = ("spark.hadoop.hive.metastore.uris", "spark.hadoop.javax.jdo.option.ConnectionURL", CATALOG)
JVM_OPTIONS, DEFAULT_JVM_OPTIONS = "spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"
EXECUTOR_JVM_OPTIONS = "spark.executor.extraJavaOptions"
CLASS_PATH = "spark.driver.extraClassPath"
SECRET = "(?i)secret|password|passphrase|token|credential|jaas|(access|account|api)[._]?key"
_runs_for_long = False
LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} Spark %p %c{1}: %m%n%ex{0}
# dbt reports the error of a job as the error of its model.
logger.spark.name = org.apache.spark
logger.spark.level = off
logger.hive.name = org.apache.hadoop.hive
logger.hive.level = off
logger.hive2.name = hive
logger.hive2.level = off
logger.nucleus.name = DataNucleus
logger.nucleus.level = off
# The level of the root logger: Spark prints a message if this one differs from it.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.kafka.name = org.apache.kafka
logger.kafka.level = off
"""


def default_shuffle_partitions() -> str:
    """The number of tasks of a shuffle, if the profile does not set it."""
    return str(max(16, 2 * (os.cpu_count() or 1)))


def driver_settings(credentials: UpsertKafkaCredentials) -> dict[str, Any]:
    """All settings of a driver in this process, those of the profile included.

    Raises:
        UpsertKafkaError: the profile's master or jars can't be used.
    """
    master.check(credentials.master)
    settings = _defaults(credentials)
    if uses_project_catalog(credentials):
        settings |= _project_catalog(credentials.state_dir)
    # The JVM options of the profile are added to the adapter's, they do not replace them.
    of_profile = str(credentials.spark.get(JVM_OPTIONS, ""))
    of_archive = class_archive.options(str(settings.get(CLASS_PATH, "")))
    others = f"{credentials.spark.get(DEFAULT_JVM_OPTIONS, '')} {of_profile}"
    for_commands = command_jvm_options(others) if is_local(credentials) and not _runs_for_long else ""
    jvm_options = [settings[JVM_OPTIONS], for_commands, of_archive, of_profile]
    executor_options = [MACHINE_OPTIONS, credentials.spark.get(EXECUTOR_JVM_OPTIONS, "")]
    zone = str(credentials.spark.get(time_zone.SETTING, SESSION_SETTINGS[time_zone.SETTING]))
    return {
        # Of Python workers: a UDF gets timestamps as datetimes in the time zone of its process.
        **({"spark.executorEnv.TZ": zone} if time_zone.is_region(zone) else {}),
        **settings,
        **credentials.spark,
        JVM_OPTIONS: " ".join(jvm_options).strip(),
        EXECUTOR_JVM_OPTIONS: " ".join(executor_options).strip(),
    }


def connect_settings(credentials: UpsertKafkaCredentials) -> dict[str, str]:
    """The settings of a session of a Spark Connect server."""
    return {**SESSION_SETTINGS, **credentials.spark}


def kafka_jars(spark_version: str) -> list[str]:
    """Maven coordinates of the jars with which Spark reads and writes Kafka and Avro."""
    names = ("spark-sql-kafka-0-10", "spark-avro")
    return [f"org.apache.spark:{name}_{SCALA}:{spark_version}" for name in names]


def fetch_kafka_jars(spark_version: str) -> list[Path]:
    """The jars of `kafka_jars` and their dependencies.

    Raises:
        JarsNotFoundError: the Maven repository lacks one. The message names the versions of pyspark whose jars it has.
    """
    try:
        return java.fetch_jars("spark-kafka", kafka_jars(spark_version), INSIDE_SPARK)
    except JarsNotFoundError as error:
        remedy = (
            f"{_versions_with_jars()}, or name jars with `jars:` in the profile: files, or Maven coordinates that the "
            "repository has (docs/compatibility.md)."
        )
        raise JarsNotFoundError(f"pyspark {spark_version}", error.jars, remedy) from None


def _versions_with_jars() -> str:
    """Which of the tested versions of pyspark the Maven repository has all jars for, as the beginning of a remedy."""
    found = []
    for version in tested_versions.PYSPARK:
        jars = [*kafka_jars(version), f"org.apache.spark:spark-token-provider-kafka-0-10_{SCALA}:{version}"]
        try:
            java.fetch_files("spark-kafka", jars)
        except UpsertKafkaError:
            continue
        found.append(version)
    return f"Install pyspark {' or '.join(found)}, whose jars it has" if found else "Use another Maven repository"


def local_settings() -> dict[str, str]:
    """Settings for a Spark that runs on one machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        # Java's own default. Spark's default of 1 GB is for drivers whose executors run elsewhere.
        "spark.driver.memory": f"{max(1024, memory // 4 // 2**20)}m",
        # Each task of a shuffle writes this many files. Spark's default of 200 is for clusters.
        "spark.sql.shuffle.partitions": default_shuffle_partitions(),
        # A few models generate more classes than the 100 that Spark caches, and evicted classes are compiled again.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # How often the rows of running tasks are counted, for `progress`.
        "spark.executor.heartbeatInterval": "2s",
        # An executor gives up after this many heartbeats without an answer: ten minutes, as with Spark's defaults.
        "spark.executor.heartbeat.maxFailures": "300",
    }


def expect_to_run_for_long() -> None:
    """Start a Spark of this process with Java's own defaults. For processes that run for hours, like `upsert-kafka stream`."""
    global _runs_for_long
    _runs_for_long = True


def command_jvm_options(of_profile: str = "") -> str:
    """JVM options for a Spark that runs in the JVM of a command, without those that other options of the JVM exclude.

    Args:
        of_profile: the profile's JVM options.
    """
    of_environment = [os.environ.get(variable, "") for variable in JVM_VARIABLES]
    names_collector = any(COLLECTOR.search(options) for options in (of_profile, *of_environment)) or not installation.is_plain()
    return COMMAND_JVM_OPTIONS if names_collector else f"{GARBAGE_COLLECTOR} {COMMAND_JVM_OPTIONS}"


def is_local(credentials: UpsertKafkaCredentials) -> bool:
    """Whether driver and executors are this process (`local`, `local[n]`)."""
    return credentials.remote is None and master.is_local(credentials.master or "local")


def worker_python(credentials: UpsertKafkaCredentials) -> str:
    """The Python of Spark's workers: this one on this machine, otherwise the one that Spark's setting or variable names."""
    if credentials.remote is None and _on_this_machine(credentials):
        return sys.executable
    return credentials.spark.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or "python3"


def uses_project_catalog(credentials: UpsertKafkaCredentials) -> bool:
    """Whether the catalog is in the project's folder: the profile names neither a metastore nor another catalog."""
    return not any(name in credentials.spark for name in METASTORE_SETTINGS)


def is_secret(setting: str) -> bool:
    """Whether the value of a setting must not be on a command line. The JVM needs `spark.driver.*` there to start."""
    return not setting.startswith("spark.driver.") and bool(re.search(SECRET, setting))


def without_secrets(spark_settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that may be on a command line."""
    return {name: value for name, value in spark_settings.items() if not is_secret(name)}


def _defaults(credentials: UpsertKafkaCredentials) -> dict[str, Any]:
    log4j = java.cache_dir() / "log4j2.properties"
    if not log4j.is_file() or log4j.read_text() != LOG4J:
        log4j.parent.mkdir(parents=True, exist_ok=True)
        log4j.write_text(LOG4J)
    return {
        "spark.master": credentials.master or "local[*]",
        "spark.app.name": "dbt-upsert-kafka",
        **_jar_settings(credentials),
        "spark.ui.enabled": "false",
        # Spark hides the values of these settings in its UI, its event log and its plans: Spark's default and more.
        "spark.redaction.regex": SECRET,
        # `progress` shows the rows of each model instead.
        "spark.ui.showConsoleProgress": "false",
        # Where the profile names a metastore. The project's own catalog replaces it.
        CATALOG: "hive",
        **(local_settings() if _on_this_machine(credentials) else {}),
        **SESSION_SETTINGS,
        **DRIVER_SETTINGS,
        **(DELTA_SETTINGS if credentials.file_format == "delta" else {}),
        JVM_OPTIONS: f"{MACHINE_OPTIONS} -Dlog4j2.configurationFile={log4j.as_uri()} -Dderby.stream.error.file=/dev/null",
    }


def _jar_settings(credentials: UpsertKafkaCredentials) -> dict[str, str]:
    """Where Spark finds the jars. A driver without executors has its own jars on the class path: the class archive has only
    classes from there, and Spark copies the jars in `spark.jars` at each start."""
    more = _more_jars(credentials)
    if credentials.jars is not None:
        return {"spark.jars": ",".join(more)}
    # One class path replaces another, so it is not used where Spark may have one already.
    if is_local(credentials) and CLASS_PATH not in credentials.spark and installation.is_plain():
        return {"spark.jars": ",".join(more), CLASS_PATH: kafka_class_path()}
    return {"spark.jars": ",".join([*map(str, fetch_kafka_jars(pyspark.__version__)), *more])}


def kafka_class_path() -> str:
    """The jars for Kafka as a class path."""
    return os.pathsep.join(map(str, fetch_kafka_jars(pyspark.__version__)))


def _more_jars(credentials: UpsertKafkaCredentials) -> list[str]:
    """The jars of the profile, or those that it needs besides the jars for Kafka."""
    jars = credentials.jars or []
    if credentials.jars is None and credentials.file_format == "delta":
        jars = [str(jar) for jar in java.fetch_jars("delta", DELTA_JARS, (*INSIDE_SPARK, "org.antlr"))]
    if credentials.kafka.get("sasl.mechanism") == MSK_IAM and not any("aws-msk-iam-auth" in jar for jar in jars):
        jars = [*jars, MSK_IAM_JAR]
    coordinates = [jar for jar in jars if java.is_coordinate(jar)]
    if coordinates:
        jars = [jar for jar in jars if jar not in coordinates] + [str(jar) for jar in java.fetch_files("jars", coordinates)]
    missing = [jar for jar in jars if not Path(jar).is_file()]
    if missing:
        raise UpsertKafkaError(f"'jars' in your profile names files that do not exist: {', '.join(missing)}. Correct the paths.")
    return jars


def _on_this_machine(credentials: UpsertKafkaCredentials) -> bool:
    """Whether the workers run on this machine; those of `local-cluster` do, in processes of their own."""
    return (credentials.master or "local").startswith("local")


def _project_catalog(state_dir: Path) -> dict[str, str]:
    """The settings for `project_catalog`."""
    return {
        CATALOG: "in-memory",
        "spark.sql.warehouse.dir": str(state_dir / project_catalog.WAREHOUSE),
        # The partitions of a table are the folders that it has, and its files are listed for each query: another process may
        # have changed them.
        "spark.sql.hive.manageFilesourcePartitions": "false",
        "spark.sql.filesourceTableRelationCacheSize": "0",
    }
