"""Spark's launcher is asked once for the command of the driver's JVM; in doubt spark-submit is used."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from dbt.adapters.upsert_kafka import java
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.spark import launcher, settings

SETTINGS = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.sql.ansi.enabled": "true"}
COMMAND = "\0\n/jdk/bin/java\0-cp\0/spark jars/*\0-Xmx1g\0org.apache.spark.deploy.SparkSubmit\0--conf\0a=b\0pyspark-shell\0"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The command lines with which the launcher was started; it prints COMMAND."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, COMMAND, "")

    monkeypatch.setattr(launcher.subprocess, "run", run)
    monkeypatch.setattr(java, "find_java", lambda: Path("/jdk/bin/java"))
    monkeypatch.setattr(java, "build", lambda: "17")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    return commands


def test_launcher_is_asked_once(asked: list[list[str]]) -> None:
    script = launcher.script_of(SETTINGS)
    assert script is not None and script.stat().st_mode & 0o777 == 0o700
    assert script.read_text().splitlines()[-1] == (
        "exec /jdk/bin/java -cp '/spark jars/*' -Xmx1g org.apache.spark.deploy.SparkSubmit \"$@\""
    )
    assert launcher.script_of({**SETTINGS, "spark.sql.ansi.enabled": "false"}) == script
    assert len(asked) == 1


def test_launcher_is_asked_again_if_something_changes(asked: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = {launcher.script_of(SETTINGS), launcher.script_of({**SETTINGS, "spark.driver.memory": "2g"})}
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xlog")
    scripts.add(launcher.script_of(SETTINGS))
    monkeypatch.setattr(java, "build", lambda: "21")
    scripts.add(launcher.script_of(SETTINGS))
    assert len(scripts) == len(asked) == 4


@pytest.mark.parametrize(
    ("variable", "value"), [("SPARK_HOME", "/opt/spark"), ("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")]
)
def test_spark_submit_is_used_with_another_spark(
    asked: list[list[str]], monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert launcher.script_of(SETTINGS) is None and not asked


def test_spark_submit_is_used_with_files_of_the_user(
    asked: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.memory 3g\n")
    assert launcher.script_of(SETTINGS) is None and not asked


def test_spark_submit_is_used_if_a_secret_would_be_stored(asked: list[list[str]]) -> None:
    options = {"spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStorePassword=secret"}
    assert launcher.script_of({**SETTINGS, **options}) is None and not asked


def test_launcher_is_asked_with_the_jars_of_a_default_profile(asked: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    jars = [Path("spark-sql-kafka-0-10_2.13-4.0.0.jar"), Path("spark-token-provider-kafka-0-10_2.13-4.0.0.jar")]
    monkeypatch.setattr(settings, "fetch_kafka_jars", lambda _: jars)
    of_profile = settings.driver_settings(UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1"))
    assert "token" in of_profile[settings.CLASS_PATH]
    assert launcher.script_of(settings.without_secrets(of_profile)) is not None
    [command] = asked
    assert f"{settings.CLASS_PATH}={jars[0]}:{jars[1]}" in command


def test_spark_submit_is_used_for_a_cluster(asked: list[list[str]]) -> None:
    assert launcher.script_of({**SETTINGS, "spark.master": "yarn"}) is None and not asked


def test_spark_submit_is_used_if_the_launcher_prints_something_else(
    asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 1, "", "no"))
    assert launcher.script_of(SETTINGS) is None
