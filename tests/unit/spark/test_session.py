"""What is reported when Spark starts, and what a shared JVM depends on."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from dbt.adapters.upsert_kafka import kafka_properties
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError, WarningError
from dbt.adapters.upsert_kafka.kafka_properties import JavaClient
from dbt.adapters.upsert_kafka.spark import session, settings, shared_jvm


class StopError(Exception):
    """Ends the start after the versions were looked at."""


@pytest.mark.parametrize(("java", "pyspark_version", "count"), [("17", "4.0.0", 0), ("24", "4.0.0", 1), ("24", "4.3.0", 1)])
def test_versions_that_were_not_tested_are_one_warning(
    monkeypatch: pytest.MonkeyPatch, java: str, pyspark_version: str, count: int, warnings: list[str]
) -> None:
    def stop(_: Any) -> None:
        raise StopError

    monkeypatch.setattr(session.java, "major_version", lambda: java)
    monkeypatch.setattr(pyspark, "__version__", pyspark_version)
    monkeypatch.setattr(session, "export_secrets", stop)
    credentials: Any = None
    with pytest.raises(StopError):
        session._start(credentials, Event())
    assert [("was not tested" in line, "\n" in line) for line in warnings] == [(True, False)] * count


def test_versions_that_were_not_tested_are_an_error_with_warn_error(
    monkeypatch: pytest.MonkeyPatch, warn_error: list[str]
) -> None:
    monkeypatch.setattr(session.java, "major_version", lambda: "24")
    credentials: Any = None
    with pytest.raises(WarningError, match="Java 24 was not tested"):
        session._start(credentials, Event())


@pytest.mark.parametrize(("version", "count"), [("4.0.0", 0), ("4.3.0", 1)])
def test_untested_version_of_a_spark_connect_server_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, version: str, count: int, warnings: list[str]
) -> None:
    server = SimpleNamespace(version=version)
    monkeypatch.setattr(session.connect, "open_session", lambda *_: server)
    monkeypatch.setattr(session.connect, "check", lambda *_: None)
    monkeypatch.setattr(session.settings, "connect_settings", lambda _: {})
    credentials = UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1", remote="sc://server")
    assert session._connect(credentials) is server
    assert [line.startswith("pyspark 4.3.0 was not tested") and "Java" not in line for line in warnings] == [True] * count


def test_property_that_the_client_of_this_spark_lacks_is_refused_and_spark_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[Any] = []
    newer = "sasl.oauthbearer.client.credentials.client.id"
    spark: Any = SimpleNamespace(sql=lambda _: SimpleNamespace(collect=list))
    client = JavaClient("3.9.1", frozenset(kafka_properties.PROPERTIES) - {newer})
    for name, value in {"export_secrets": lambda _: {}, "_shared_session": lambda *_: spark, "_stop": stopped.append}.items():
        monkeypatch.setattr(session, name, value)
    monkeypatch.setattr(session.java, "major_version", lambda: "17")
    monkeypatch.setattr(session.settings, "driver_settings", lambda _: {})
    monkeypatch.setattr(session.settings, "uses_project_catalog", lambda _: False)
    monkeypatch.setattr(session.launcher, "script_of", lambda _: None)
    monkeypatch.setattr(session.internals, "delete_artifacts_folder", lambda _: None)
    monkeypatch.setattr(session.internals, "java_kafka_client", lambda _: client)
    for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "python")
    known = UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1", master="local", kafka={"client.id": "dbt"})
    unknown = UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1", master="local", kafka={newer: "dbt"})
    try:
        assert session._start(known, Event()) is spark and stopped == []
        with pytest.raises(UpsertKafkaError, match=rf"'kafka: {newer}' can't be set: the Kafka client 3\.9\.1 of this Spark"):
            session._start(unknown, Event())
        assert stopped == [spark]
    finally:
        kafka_properties.use_java_client(None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, str], bool]]:
    """The identity and `own_state` with which a session of the resident's JVM was asked for."""
    found: list[tuple[dict[str, str], bool]] = []
    monkeypatch.setattr(shared_jvm, "is_offered", lambda: True)
    monkeypatch.setattr(shared_jvm, "open_session", lambda _, identity, own_state: found.append((dict(identity), own_state)))
    monkeypatch.setattr(session.java, "find_java", lambda: Path("/usr/bin/java"))
    monkeypatch.setattr(session.java, "build", lambda: "17")
    monkeypatch.setattr(UpsertKafkaCredentials, "project_root", Path("/shop"))
    return found


def open_shared(catalog: str = "in-memory", **kafka: str) -> None:
    credentials = UpsertKafkaCredentials(schema="dev", bootstrap_servers="localhost:1", kafka=kafka)
    session._shared_session(credentials, {"spark.master": "local[2]", settings.CATALOG: catalog}, {})


def test_only_a_metastore_is_shared_between_commands(asked: list[tuple[dict[str, str], bool]]) -> None:
    open_shared("in-memory")
    open_shared("hive")
    assert [own_state for _, own_state in asked] == [True, False]


def test_another_directory_java_or_referenced_variable_changes_the_identity(
    asked: list[tuple[dict[str, str], bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's config providers read variables in the JVM, and relative paths are those of its working directory."""
    monkeypatch.setenv("STORE_PASSWORD", "first")
    provided = {"ssl.truststore.password": "${env:STORE_PASSWORD}"}
    open_shared(**provided)
    monkeypatch.setenv("STORE_PASSWORD", "second")
    open_shared(**provided)
    before = os.getcwd()
    monkeypatch.chdir(tmp_path)
    open_shared(**provided)
    monkeypatch.setattr(session.java, "build", lambda: "21")
    monkeypatch.chdir(before)
    open_shared(**provided)
    identities = [identity for identity, _ in asked]
    changed = [{name for name in former if former[name] != later[name]} for former, later in pairwise(identities)]
    assert changed == [{"STORE_PASSWORD"}, {"the working directory"}, {"the working directory", "Java"}]
