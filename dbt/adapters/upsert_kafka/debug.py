"""The checks of `dbt debug`: Spark, its Kafka jars, the brokers. Each failure is one line with a remedy."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings


def report(spark: SparkSession, credentials: UpsertKafkaCredentials, kafka: KafkaSettings) -> Iterator[str]:
    """Yield one line per check that passed; raises at the first that failed."""
    master = credentials.server or spark.conf.get("spark.master")
    yield f"Spark {spark.version}, {'remote' if credentials.remote else 'master'} {master}"
    try:
        spark.read.format("kafka").options(**kafka.spark_source(), subscribe="dbt-debug").load()
    except Exception as error:  # Py4J's and Spark's errors have no common base
        raise UpsertKafkaError(
            f"Spark has no Kafka jars ({type(error).__name__}). Remove `jars` from your profile so that they are downloaded, "
            "or list all of them there."
        ) from error
    yield "Kafka and Avro jars: found"
    with kafka.admin() as admin:
        cluster = admin.describe_cluster()
        brokers = cluster["brokers"]
        active = next(broker for broker in brokers if not broker.get("is_fenced"))
        version = ".".join(map(str, admin.get_broker_version_data(active["broker_id"]).broker_version))
    count = f"{len(brokers)} broker{'' if len(brokers) == 1 else 's'}"
    yield f"Kafka {version} or newer at {kafka.bootstrap_servers}, cluster {cluster['cluster_id']}, {count}"
