"""What `dbt debug` tells: Spark, its jars, the broker. Each failure is one line that says what to do."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings


def report(spark: SparkSession, credentials: UpsertKafkaCredentials, kafka: KafkaSettings) -> Iterator[str]:
    """One line per fact; raises where something is missing."""
    master = credentials.server or spark.conf.get("spark.master")
    yield f"Spark {spark.version}, {'remote' if credentials.remote else 'master'} {master}"
    try:
        spark.read.format("kafka").options(**kafka.spark_source(), subscribe="dbt-debug").load()
    except Exception as error:  # Py4J's and Spark's errors have no common base
        raise UpsertKafkaError(
            f"Spark has no Kafka jars ({type(error).__name__}): remove `jars` from the profile so that they are fetched, "
            "or name them all there"
        ) from error
    yield "Kafka and Avro jars: found"
    with kafka.admin() as admin:
        cluster = admin.describe_cluster()
        version = ".".join(str(part) for part in admin._manager.broker_version)
    brokers = len(cluster["brokers"])
    yield f"Kafka {version} or newer at {kafka.bootstrap_servers}, cluster {cluster['cluster_id']}, {brokers} broker(s)"
