"""Spark's settings: which are secret, and where Spark runs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import pytest

from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.spark import settings


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("spark.executorEnv.DBT_UPSERT_KAFKA_SECRET_SASL_JAAS_CONFIG", True),
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.hadoop.fs.s3a.access.key", True),
        ("spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net", True),
        ("spark.hadoop.javax.jdo.option.ConnectionPassword", True),
        ("spark.sql.catalog.rest.credential", True),
        ("spark.sql.shuffle.partitions", False),
        # The JVM needs these when it starts.
        ("spark.driver.extraJavaOptions", False),
        ("spark.jars", False),
    ],
)
def test_setting_named_like_a_secret_is_kept_off_the_command_line(name: str, secret: bool) -> None:
    assert settings.is_secret(name) is secret


@pytest.mark.parametrize(
    ("master", "local"), [(None, True), ("local", True), ("local[2]", True), ("local-cluster[1,1,512]", False), ("yarn", False)]
)
def test_only_a_local_master_runs_executors_in_this_process(master: str | None, local: bool) -> None:
    assert settings.is_local(UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1", master=master)) is local


@pytest.mark.parametrize("own_jars", [None, ["org.example:other:1.0"]])
def test_msk_iam_adds_the_jar_of_aws_with_a_checksum(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_jars: list[str] | None
) -> None:
    def fetch_files(name: str, coordinates: Iterable[str]) -> list[Path]:
        found = []
        for coordinate in coordinates:
            _, artifact, version, *file = coordinate.split(":")
            found.append(tmp_path / f"{'-'.join([artifact, version, *file[1:]])}.jar")
            found[-1].touch()
        return found

    def fetch_kafka_jars(version: str) -> list[Path]:
        return fetch_files("spark-kafka", [f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"])

    monkeypatch.setattr(settings.java, "fetch_files", fetch_files)
    monkeypatch.setattr(settings, "fetch_kafka_jars", fetch_kafka_jars)
    credentials = UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1", jars=own_jars)
    assert "aws" not in str(jar_names(credentials))
    credentials.kafka = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
    names = jar_names(credentials)
    [of_aws] = [name for name in names if "aws-msk-iam-auth" in name]
    assert len(names) == 2
    assert of_aws in resources.files("dbt.adapters.upsert_kafka").joinpath("checksums.txt").read_text().split()
    credentials.jars = [str(tmp_path / of_aws)]
    assert settings._jar_settings(credentials) == {"spark.jars": credentials.jars[0]}, "the user's own jar of AWS is used"


def jar_names(credentials: UpsertKafkaCredentials) -> list[str]:
    return [Path(jar).name for jars in settings._jar_settings(credentials).values() for jar in re.split("[:,]", jars) if jar]


@pytest.mark.parametrize(
    ("master", "spark", "is_on_class_path"),
    [("local[2]", {}, True), ("yarn", {}, False), ("local[2]", {settings.CLASS_PATH: "of-user.jar"}, False)],
)
def test_only_a_driver_without_executors_has_the_jars_on_its_class_path(
    monkeypatch: pytest.MonkeyPatch, master: str, spark: dict[str, str], is_on_class_path: bool
) -> None:
    monkeypatch.setattr(settings, "fetch_kafka_jars", lambda _: [Path("kafka.jar"), Path("avro.jar")])
    credentials = UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1", master=master, spark=spark)
    class_path = {"spark.jars": "", settings.CLASS_PATH: "kafka.jar:avro.jar"}
    assert settings._jar_settings(credentials) == (class_path if is_on_class_path else {"spark.jars": "kafka.jar,avro.jar"})


def test_class_path_and_collector_of_the_user_are_not_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(settings, "fetch_kafka_jars", lambda _: [Path("kafka.jar")])
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    credentials = UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1")
    assert settings.driver_settings(credentials)[settings.CLASS_PATH] == "kafka.jar"
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.extraClassPath of-user.jar\n")
    found = settings.driver_settings(credentials)
    assert settings.CLASS_PATH not in found and found["spark.jars"] == "kafka.jar"
    assert settings.GARBAGE_COLLECTOR not in found[settings.JVM_OPTIONS]


def test_default_options_of_the_profile_may_name_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "fetch_kafka_jars", lambda _: [])
    spark = {settings.DEFAULT_JVM_OPTIONS: "-XX:+UseG1GC"}
    credentials = UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1", spark=spark)
    assert settings.GARBAGE_COLLECTOR not in settings.driver_settings(credentials)[settings.JVM_OPTIONS]


@pytest.mark.parametrize("for_long", [False, True])
def test_jvm_of_a_stream_has_the_defaults_of_java(monkeypatch: pytest.MonkeyPatch, for_long: bool) -> None:
    monkeypatch.setattr(settings, "_runs_for_long", False)
    monkeypatch.setattr(settings, "fetch_kafka_jars", lambda _: [])
    if for_long:
        settings.expect_to_run_for_long()
    credentials = UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1")
    assert (settings.COMMAND_JVM_OPTIONS in settings.driver_settings(credentials)[settings.JVM_OPTIONS]) is not for_long


@pytest.mark.parametrize("variable", [None, *settings.JVM_VARIABLES])
def test_java_gets_one_garbage_collector(monkeypatch: pytest.MonkeyPatch, variable: str | None) -> None:
    assert settings.GARBAGE_COLLECTOR in settings.command_jvm_options("-Xmx1g")
    if variable is None:
        options = settings.command_jvm_options("-XX:+UseZGC -Xmx1g")
        assert settings.GARBAGE_COLLECTOR not in settings.command_jvm_options("@options.txt")
    else:
        monkeypatch.setenv(variable, "-XX:+UseG1GC")
        options = settings.command_jvm_options()
    assert "GC" not in options


def test_log_settings_are_written_again_if_they_differ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    credentials = UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1", jars=[str(tmp_path / "spark.jar")])
    (tmp_path / "spark.jar").touch()
    file = tmp_path / "dbt-upsert-kafka" / "log4j2.properties"
    for _ in range(2):
        settings._defaults(credentials)
        assert file.read_text() == settings.LOG4J
        file.write_text("of an earlier version")
