"""Spark behind a Spark Connect server: the same models work, and one line reports what a server lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyspark
import pytest
import yaml

from dbt.adapters.upsert_kafka.embedded.node import LOOPBACK, free_ports
from dbt.adapters.upsert_kafka.java import fetch_jars
from dbt.adapters.upsert_kafka.spark.settings import INSIDE_SPARK, kafka_jars
from tests.cluster import shop
from tests.dbt_project import Project
from tests.spark_cluster import ConnectServer

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="dbt" password="hidden";'


@pytest.fixture(scope="module")
def server() -> Iterator[ConnectServer]:
    with ConnectServer(fetch_jars("spark-kafka", kafka_jars(pyspark.__version__), INSIDE_SPARK)) as running:
        yield running


def test_topics_equal_their_selects(server: ConnectServer, dbt_project: Callable[..., Project]) -> None:
    shop.run_two_days(dbt_project(shop.FILES, remote=server.remote))


@pytest.mark.nightly
def test_server_that_cannot_be_used_is_reported_in_one_line(server: ConnectServer, dbt_project: Callable[..., Project]) -> None:
    [unused_port] = free_ports(1)
    with ConnectServer() as bare:
        targets: dict[str, dict[str, Any]] = {
            "no_server": {"remote": f"sc://{LOOPBACK}:{unused_port}"},
            "jars": {"remote": bare.remote},
            "secret": {"remote": f"{server.remote}/;user_id=ann", "kafka": {"sasl.jaas.config": JAAS}},
            "static": {"remote": server.remote, "spark": {"spark.executor.memory": "1g"}},
        }
        project = dbt_project({"models/users.sql": "select 1 as id"}, remote=server.remote)
        outputs = {name: {**project.profile, **more} for name, more in targets.items()}
        project.write({"profiles.yml": yaml.safe_dump({"shop": {"target": "jars", "outputs": outputs}})})
        with project.one_process():
            outcomes = {name: project.run("run", "--target", name) for name in targets}
    assert all(outcome.exit_code for outcome in outcomes.values()), outcomes
    assert f"No Spark Connect server answered at 'sc://{LOOPBACK}:{unused_port}'" in outcomes["no_server"].output
    lacking = (
        f"at '{bare.remote}' has no Kafka jars, and a client cannot send them. Start the server with --packages org.apache.spark:"
    )
    assert lacking in outcomes["jars"].output
    assert f"at '{server.remote}' lacks secrets of `kafka` in your profile, which are never sent" in outcomes["secret"].output
    assert "with the environment variable DBT_UPSERT_KAFKA_SECRET_SASL_JAAS_CONFIG" in outcomes["secret"].output
    assert (
        f"at '{server.remote}' refused spark.executor.memory: a client cannot change this. Remove it from spark"
        in outcomes["static"].output
    )
    assert not any("hidden" in outcome.output or "at org.apache" in outcome.output for outcome in outcomes.values())
