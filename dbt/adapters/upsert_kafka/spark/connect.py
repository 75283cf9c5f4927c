"""Spark behind a Spark Connect server: opens sessions, and reports what a server lacks before anything is written.

Neither jars nor secrets can be added to a running server. Leaves to `session` when sessions are opened and closed.
"""

from __future__ import annotations

from collections.abc import Mapping

from dbt.adapters.events.logging import AdapterLogger
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client.clients import secret_variables
from dbt.adapters.upsert_kafka.spark import internals

logger = AdapterLogger("upsert_kafka")

# By default pyspark retries for ten minutes if no server answers.
RETRIES_AT_START = 4


def open_session(credentials: UpsertKafkaCredentials, settings: Mapping[str, str]) -> SparkSession:
    """Return a new session with temporary views and settings of its own."""
    server = credentials.server
    try:
        spark = SparkSession.builder.remote(str(credentials.remote)).create()
        internals.set_connect_retries(spark, RETRIES_AT_START)
        # The version is the first request to the server.
        logger.debug(f"Spark Connect {spark.version} at {server}")
        internals.set_connect_retries(spark)
    except ImportError as error:
        raise UpsertKafkaError(
            f"'remote' in your profile needs packages that are not installed ({error}). "
            "Install them: pip install 'dbt-upsert-kafka[connect]'"
        ) from error
    except Exception as error:  # gRPC's and pyspark's errors have no common base
        logger.debug(f"Spark Connect: {error!r}")
        raise UpsertKafkaError(
            f"No Spark Connect server answered at '{server}' ({type(error).__name__}). Check remote in your profile."
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
            f"The Spark Connect server at '{server}' refused {', '.join(sorted(refused))}: a client cannot change this. "
            "Remove it from spark in your profile, and set it where the server is started."
        )
    return spark


def check(spark: SparkSession, credentials: UpsertKafkaCredentials, jars: list[str]) -> None:
    """Raise if the server could not read or write a topic.

    Args:
        jars: Maven coordinates of the jars that the server needs.
    """
    try:
        # `schema` only analyses the plan: no broker is asked.
        _ = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": "-:1"}, subscribe="-").load().schema
    except AnalysisException as error:
        logger.debug(f"Spark Connect: {error}")
        raise UpsertKafkaError(
            f"The Spark Connect server at '{credentials.server}' has no Kafka jars, and a client cannot send them. "
            f"Start the server with --packages {','.join(jars)}"
        ) from error
    variables = secret_variables(credentials)
    if not variables:
        return
    # getenv of a variable that is not set is the text 'null'.
    is_set = [f"coalesce(reflect('java.lang.System', 'getenv', '{name}'), 'null') <> 'null' AS {name}" for name in variables]
    try:
        [row] = spark.sql(f"SELECT {', '.join(is_set)}").collect()
    except PySparkException as error:
        logger.debug(f"The Spark Connect server does not show its environment: {error}")
        return
    if missing := [name for name in variables if not row[name]]:
        raise UpsertKafkaError(
            f"The Spark Connect server at '{credentials.server}' lacks secrets of `kafka` in your profile, which are never sent. "
            f"Start it, and its executors, with the environment variable{'s' if missing[1:] else ''} {', '.join(missing)}"
        )
