"""Spark behind a Spark Connect server: the same models, and one line for what the server lacks, before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyspark
import pytest
import yaml

from dbt.adapters.upsert_kafka.embedded.node import LOOPBACK, free_ports
from dbt.adapters.upsert_kafka.java import fetch_jars
from dbt.adapters.upsert_kafka.session import INSIDE_SPARK, kafka_jars
from tests.cluster import shop
from tests.dbt_project import Project
from tests.spark_cluster import ConnectServer

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="dbt" password="hidden";'


@pytest.fixture(scope="module")
def server() -> Iterator[ConnectServer]:
    with ConnectServer(fetch_jars("spark-kafka", kafka_jars(pyspark.__version__), INSIDE_SPARK)) as running:
        yield running


def test_topics_follow_their_selects(server: ConnectServer, dbt_project: Callable[..., Project]) -> None:
    shop.run_two_days(dbt_project(shop.FILES, remote=server.remote))


def test_what_a_server_lacks_is_said_in_one_line(server: ConnectServer, dbt_project: Callable[..., Project]) -> None:
    [nobody] = free_ports(1)
    with ConnectServer() as bare:
        targets: dict[str, dict[str, Any]] = {
            "nobody": {"remote": f"sc://{LOOPBACK}:{nobody}"},
            "jars": {"remote": bare.remote},
            "secret": {"remote": f"{server.remote}/;user_id=ann", "kafka": {"sasl.jaas.config": JAAS}},
            "static": {"remote": server.remote, "spark": {"spark.executor.memory": "1g"}},
        }
        project = dbt_project({"models/users.sql": "select 1 as id"}, remote=server.remote)
        outputs = {name: {**project.profile, **more} for name, more in targets.items()}
        project.write({"profiles.yml": yaml.safe_dump({"shop": {"target": "jars", "outputs": outputs}})})
        with project.one_process():
            said = {name: project.run("run", "--target", name) for name in targets}
    assert all(outcome.exit_code for outcome in said.values()), said
    assert f"No Spark Connect server answered at 'sc://{LOOPBACK}:{nobody}'" in said["nobody"].output
    lacking = f"at '{bare.remote}' has no Kafka jars, and they can't be sent to it: start it with --packages org.apache.spark:"
    assert lacking in said["jars"].output
    assert f"at '{server.remote}' lacks secrets of the profile's kafka:, which are never sent" in said["secret"].output
    assert "with the environment variable DBT_UPSERT_KAFKA_SECRET_SASL_JAAS_CONFIG" in said["secret"].output
    assert f"at '{server.remote}' does not take spark.executor.memory: remove it from spark" in said["static"].output
    assert not any("hidden" in outcome.output or "at org.apache" in outcome.output for outcome in said.values())
