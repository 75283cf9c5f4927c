"""The Kafka client in Spark's jars decides which client properties are known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import kafka_properties, options
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.spark import internals

MODEL = {"materialized": "upsert_kafka", "unique_key": "id"}


@pytest.fixture
def java_client(spark: SparkSession) -> Iterator[kafka_properties.JavaClient]:
    client = internals.java_kafka_client(spark)
    assert client is not None
    kafka_properties.use_java_client(client)
    yield client
    kafka_properties.use_java_client(None)


def test_catalogue_has_all_properties_of_the_client(java_client: kafka_properties.JavaClient) -> None:
    public = {name for name in java_client.names if not name.startswith("internal.")}
    # The one that Kafka 4.0 removed.
    removed = {"auto.include.jmx.reporter"} if java_client.version.startswith("3.") else set()
    assert public - kafka_properties.PROPERTIES.keys() == removed


def test_model_with_a_property_that_the_client_lacks_is_refused(java_client: kafka_properties.JavaClient) -> None:
    name = "sasl.oauthbearer.client.credentials.client.id"
    assert (name in java_client.names) is (not java_client.version.startswith("3."))
    options.parse("upsert_kafka", "users", {**MODEL, "properties": {"linger.ms": "5"}})
    if name not in java_client.names:
        with pytest.raises(OptionsError, match=rf"{name}.*the Kafka client {java_client.version} of this Spark does not have"):
            options.parse("upsert_kafka", "users", {**MODEL, "properties": {name: "dbt"}})
