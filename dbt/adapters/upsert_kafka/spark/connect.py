"""Spark behind a Spark Connect server: a session as this process would start it, or one line that says what the server lacks.

Neither jars nor secrets can be added to a server that runs, so their absence is found here, before anything is written. Leaves to
`session` when a session is opened and closed.
"""

from __future__ import annotations

from collections.abc import Mapping

from dbt.adapters.events.logging import AdapterLogger
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_clients import secret_variables

logger = AdapterLogger("upsert_kafka")

# pyspark itself would ask a server that is not there for ten minutes.
FIRST_TRIES = 4


def open_session(credentials: UpsertKafkaCredentials, settings: Mapping[str, str]) -> SparkSession:
    """A session with temporary views and settings of its own."""
    server = credentials.server
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy

        spark = SparkSession.builder.remote(str(credentials.remote)).create()
        spark.client.set_retry_policies([DefaultPolicy(max_retries=FIRST_TRIES)])
        logger.debug(f"Spark Connect {spark.version} at {server}")
        spark.client.set_retry_policies([DefaultPolicy()])
    except ImportError as error:
        raise UpsertKafkaError(
            f"'remote' needs packages that are not installed ({error}): pip install 'dbt-upsert-kafka[connect]'"
        ) from error
    except Exception as error:  # gRPC's and pyspark's errors have no common base
        logger.debug(f"Spark Connect: {error!r}")
        raise UpsertKafkaError(
            f"No Spark Connect server answered at '{server}' ({type(error).__name__}): check remote in your profile"
        ) from error
    refused = []
    for name, value in settings.items():
        try:
            spark.conf.set(name, value)
        except PySparkException as error:
            logger.debug(f"{name}: {error}")
            refused.append(name)
    if refused:
        raise UpsertKafkaError(
            f"The Spark Connect server at '{server}' does not take {', '.join(sorted(refused))}: remove it from spark in your "
            "profile, and set it where the server is started"
        )
    return spark


def check(spark: SparkSession, credentials: UpsertKafkaCredentials, jars: list[str]) -> None:
    """Refuse a server that could not read or write a topic.

    Args:
        jars: coordinates of what it needs.
    """
    try:
        # Analysed only: nobody is asked for the topic.
        _ = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": "-:1"}, subscribe="-").load().schema
    except AnalysisException as error:
        logger.debug(f"Spark Connect: {error}")
        raise UpsertKafkaError(
            f"The Spark Connect server at '{credentials.server}' has no Kafka jars, and they can't be sent to it: "
            f"start it with --packages {','.join(jars)}"
        ) from error
    variables = secret_variables(credentials)
    if not variables:
        return
    # A variable that is not there is the text null.
    asked = [f"coalesce(reflect('java.lang.System', 'getenv', '{name}'), 'null') <> 'null' AS {name}" for name in variables]
    try:
        [found] = spark.sql(f"SELECT {', '.join(asked)}").collect()
    except PySparkException as error:
        logger.debug(f"Spark Connect does not tell its environment: {error}")
        return
    if missing := [name for name in variables if not found[name]]:
        raise UpsertKafkaError(
            f"The Spark Connect server at '{credentials.server}' lacks secrets of the profile's kafka:, which are never sent: "
            f"start it, and its executors, with the environment variable{'s' if missing[1:] else ''} {', '.join(missing)}"
        )
