"""The checks of `dbt debug`: Spark, Java, jars, brokers, state topic, schema registry. Each failure is one line with a remedy."""

from __future__ import annotations

from collections.abc import Iterator

from kafka import KafkaAdminClient
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import java
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import schema_registry
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_client.internals import describe_cluster
from dbt.adapters.upsert_kafka.spark import time_zone
from dbt.adapters.upsert_kafka.state.store import Access, StateSettings, store_of


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
    yield f"Session time zone: {spark.conf.get(time_zone.SETTING)}"
    if credentials.remote is None:
        yield f"Java: {java.java_version().splitlines()[0]}"
    with kafka.admin() as admin:
        cluster = describe_cluster(admin)
        brokers = cluster["brokers"]
        active = next(broker for broker in brokers if not broker.get("is_fenced"))
        version = ".".join(map(str, admin.get_broker_version_data(active["broker_id"]).broker_version))
        state = _state(admin, credentials, kafka)
    count = f"{len(brokers)} broker{'' if len(brokers) == 1 else 's'}"
    yield f"Kafka {version} or newer at {kafka.bootstrap_servers}, cluster {cluster['cluster_id']}, {count}"
    yield state
    yield _registry(credentials)


def _state(admin: KafkaAdminClient, credentials: UpsertKafkaCredentials, kafka: KafkaSettings) -> str:
    """What this user may do with the state topic."""
    store = store_of(kafka, StateSettings(credentials.state_topic, credentials.topic_defaults.get("replication_factor")))
    rights = {
        Access.OFF: "off (`state_topic: none`): topics have no owners",
        Access.NONE: f"'{store.topic}' can't be read by this user: grant READ, WRITE and CREATE",
        Access.READ_ONLY: f"'{store.topic}' can be read, not written, by this user: grant WRITE",
        Access.FULL: f"'{store.topic}' can be read and written",
    }
    return f"State topic: {rights[store.access(admin)]}"


def _registry(credentials: UpsertKafkaCredentials) -> str:
    """Ask the schema registry for a subject that need not exist; raises SchemaRegistryError if it does not answer."""
    if not credentials.schema_registry:
        return "Schema registry: not set; format avro-confluent needs schema_registry in the profile"
    settings = schema_registry.RegistrySettings.of(credentials.schema_registry, {})
    schema_registry.connect(settings).schemas("dbt-debug")
    return f"Schema registry: answers at {settings.urls[0]}"
