"""Spark's settings: which are secret, and where Spark runs."""

from __future__ import annotations

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
