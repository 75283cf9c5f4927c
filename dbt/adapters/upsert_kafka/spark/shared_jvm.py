"""A Spark that several dbt processes of one project share: the JVM of the resident dbt. In plain dbt nobody offers one.

A process starts the JVM or attaches to it, as its owner answers. What belongs to one dbt command stays apart from the others:

- The command has a gateway server of its own in the JVM. Py4J has one address for callbacks (catalog changes, streams) per
  server, so with one server the callbacks of a command would reach the command that attached last.
- It has a SparkSession with a state of its own (`SharedState`): catalog, cached tables, global temporary views. So each command
  loads the project's definitions from their files and writes its changes there, exactly as processes with JVMs of their own do
  (`project_catalog`). With a Hive metastore in the profile it has the state of the JVM, and caches nothing (`shares_state`).
- Its jobs have a tag with its process id, so it cancels its own only. When its process has ended, the owner ends its jobs.
- Python models get Python workers of their own, because a worker keeps the modules that it has imported.

The SparkContext, the compiled code and the threads of the JVM are shared; that is what makes it warm. Leaves to `session` when
Spark is needed, and to `shared_internals` the objects of pyspark.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dbt.adapters.events.logging import AdapterLogger
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.spark import launcher, settings, shared_internals
from dbt.adapters.upsert_kafka.spark.settings import CLASS_PATH
from dbt.adapters.upsert_kafka.spark.shared_internals import AttachedSpark, JvmEndedError

logger = AdapterLogger("upsert_kafka")

VARIABLES = re.compile(
    "JAVA|_JAVA|JDK_|SPARK_|PYSPARK_|HADOOP_|YARN_|HIVE_|KRB5|AWS_|GOOGLE_|GCE_|GCS_|AZURE_|MSI_|IDENTITY_|TZ$|TMPDIR$"
)
"""Of the environment: what the JVM and the libraries in it read when they start."""
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
"""A value that a library looks up, for example `${env:PASSWORD}` with a config provider of Kafka."""


class Owner(Protocol):
    """Who has the JVM. The answers are 'attach' (with port and secret), 'start' or 'own', some with a reason for the user."""

    def ask(self, fingerprint: dict[str, str]) -> Mapping[str, Any]: ...

    def unreachable(self, port: int, fingerprint: dict[str, str]) -> Mapping[str, Any]: ...

    def started(self, jvm: dict[str, Any], stdin: int) -> Mapping[str, Any]: ...

    def failed(self) -> None: ...

    def attached(self, port: int, secret: str, session_id: str | None) -> None: ...


@dataclass(frozen=True)
class Offer:
    """A JVM for this process."""

    owner: Owner
    environment: Mapping[str, str]
    """Of the user's command. pyspark adds variables to that of the process."""
    log: str
    """The file for what the JVM prints. It must not have the terminal of a command, which it outlives."""


_offer: Offer | None = None
_attached: AttachedSpark | None = None
_detached: list[AttachedSpark] = []
"""Kept, because Py4J frees objects in the JVM that no object here stands for."""
_has_own_state = True


def offer(jvm: Offer) -> None:
    """Let the Spark of this process be in a shared JVM."""
    global _offer
    _offer = jvm


def is_offered() -> bool:
    return _offer is not None


def open_session(spark_settings: Mapping[str, Any], identity: Mapping[str, str], own_state: bool) -> SparkSession | None:
    """A session in the shared JVM; None if this process has to start a JVM of its own, for which the user was given the reason.

    Args:
        identity: what the JVM depends on in addition to its settings, secrets included. Only hashes leave this process.
        own_state: whether the session gets a catalog of its own.

    Raises:
        Py4JError, PySparkException, OSError: Spark did not start.
    """
    global _attached, _has_own_state
    assert _offer is not None
    owner = _offer.owner
    fingerprint = fingerprint_of(spark_settings, identity, _offer.environment)
    answer = owner.ask(fingerprint)
    while True:
        if answer.get("reason"):
            logger.info(answer["reason"])
        if answer["answer"] == "own":
            return None
        if answer["answer"] == "start":
            answer = _start(spark_settings, fingerprint, _offer)
            continue
        try:
            _attached = shared_internals.attach(answer["port"], answer["secret"], own_state, owner.attached)
        except (JvmEndedError, Py4JError) as error:
            logger.debug(f"The shared JVM has ended or is broken: {error}")
            answer = owner.unreachable(answer["port"], fingerprint)
            continue
        _has_own_state = own_state
        return _attached.session


def is_attached() -> bool:
    return _attached is not None


def shares_state() -> bool:
    """Whether the session has cached tables and global temporary views in common with those of other commands."""
    return is_attached() and not _has_own_state


def job_tag(process: int) -> str:
    """The tag of all jobs of a process in a shared JVM."""
    return f"dbt-{process}"


def use_new_workers(spark: SparkSession) -> None:
    """Let Python models see modules as they are now; see `shared_internals`."""
    if is_attached():
        shared_internals.use_new_workers(spark)


def detach() -> None:
    """End the use of the shared JVM. Its owner frees what belongs to this process there, after this process has ended."""
    global _attached
    attached, _attached = _attached, None
    if attached is not None:
        _detached.append(attached)
        attached.detach()


def _start(spark_settings: Mapping[str, Any], fingerprint: dict[str, str], jvm: Offer) -> Mapping[str, Any]:
    public = settings.without_secrets(spark_settings)
    log = os.open(jvm.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        started = shared_internals.start_jvm(public, spark_settings, launcher.script_of(public), log)
    except BaseException:
        jvm.owner.failed()
        raise
    finally:
        os.close(log)
    with started.stdin as stdin:
        found = {"port": started.port, "secret": started.secret, "process": started.process, "fingerprint": fingerprint}
        return jvm.owner.started(found, stdin.fileno())


def fingerprint_of(
    spark_settings: Mapping[str, Any], identity: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """A hash of everything that the JVM depends on, by name: a setting, a variable, or words for the user."""
    variables = {name: value for name, value in environment.items() if VARIABLES.match(name)}
    values = {**{name: str(value) for name, value in spark_settings.items()}, **identity, **variables}
    jars = [*values.get("spark.jars", "").split(","), *values.get(CLASS_PATH, "").split(os.pathsep)]
    values["the jars"] = "".join(map(_stamp, jars))
    return {name: hashlib.sha256(f"{name}={value}".encode()).hexdigest() for name, value in values.items()}


def referenced_variables(values: Iterable[Any], environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the environment that settings refer to, for example with `${env:NAME}`.

    >>> referenced_variables(["${env:PASSWORD}", "${file:/home/me/x:key}", 7], {"PASSWORD": "p", "OTHER": "o"})
    {'PASSWORD': 'p'}
    """
    words = {word for value in values for found in _REFERENCE.findall(str(value)) for word in re.findall(r"\w+", found)}
    return {name: environment[name] for name in sorted(words & environment.keys())}


def _stamp(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return f"{path} "
    return f"{path} {found.st_mtime_ns} {found.st_size} "
