"""Which client gets which property, and the checks of values."""

from __future__ import annotations

import pytest

from dbt.adapters.upsert_kafka import kafka_properties
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.kafka_properties import (
    TOPIC_CONFIGS,
    from_underscores,
    is_known,
    is_secret,
    nearest,
    problem,
    split,
)


def test_each_client_gets_the_properties_that_it_defines() -> None:
    clients = split(
        {"linger.ms": "5", "max.poll.records": "10", "default.api.timeout.ms": "1", "security.protocol": "SSL", "retries": "3"}
    )
    assert clients.producer == {"linger.ms": "5", "security.protocol": "SSL", "retries": "3"}
    assert clients.consumer == {"max.poll.records": "10", "default.api.timeout.ms": "1", "security.protocol": "SSL"}
    assert clients.admin == {"default.api.timeout.ms": "1", "security.protocol": "SSL", "retries": "3"}


def test_unknown_property_goes_to_all_clients() -> None:
    clients = split({"config.providers.vault.param.address": "x"})
    assert clients.producer == clients.consumer == clients.admin == {"config.providers.vault.param.address": "x"}


def test_catalogue_contains_kafka_s_properties() -> None:
    assert len(kafka_properties.PROPERTIES) > 130
    assert {"acks", "max.poll.records", "bootstrap.controllers", "sasl.jaas.config"} <= kafka_properties.PROPERTIES.keys()
    assert {"cleanup.policy", "retention.ms", "min.insync.replicas"} <= TOPIC_CONFIGS


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("linger.ms", "5", None),
        ("linger.ms", "5.5", "must be a whole number"),
        ("sasl.login.refresh.window.factor", "0.8", None),
        ("sasl.login.refresh.window.factor", "most", "must be a number"),
        ("enable.idempotence", "TRUE", None),
        ("enable.idempotence", "1", "must be true or false"),
        ("security.protocol", "sasl_ssl", None),
        ("security.protocol", "TLS", "must be one of PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL"),
        ("linger.ms", "${vault:kafka:linger}", None),
        ("of.a.plugin", "anything", None),
    ],
)
def test_value_is_checked_by_its_type(name: str, value: str, expected: str | None) -> None:
    assert problem(name, value) == expected


@pytest.mark.parametrize(
    "name", ["sasl.jaas.config", "ssl.keystore.key", "ssl.key.password", "my.api.key", "oauth.client_secret", "x.token"]
)
def test_secret_is_recognised_by_its_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["acks", "client.id", "partitioner.ignore.keys", "ssl.keystore.location", "sasl.mechanism"])
def test_other_property_is_not_a_secret(name: str) -> None:
    assert not is_secret(name)


def test_name_with_underscores_and_misspelt_name_are_found() -> None:
    assert from_underscores("max_request_size") == "max.request.size"
    assert from_underscores("acme_thing") == "acme.thing"
    assert nearest("linger.msec") == "linger.ms"
    assert is_known("config.providers.env.class") and not is_known("linger.msec")


def test_source_gets_consumer_properties_and_sink_gets_producer_properties() -> None:
    settings = KafkaSettings("a:9092", {"linger.ms": "5", "max.poll.records": "10", "client.id": "me"})
    source, sink = settings.spark_source(), settings.spark_sink(acks="all")
    assert (source["kafka.max.poll.records"], source["kafka.client.id"]) == ("10", "me") and "kafka.linger.ms" not in source
    assert (sink["kafka.linger.ms"], sink["kafka.client.id"]) == ("5", "me") and "kafka.max.poll.records" not in sink


def test_property_of_a_newer_client_is_refused_and_a_plugin_s_is_not() -> None:
    newer = "sasl.oauthbearer.client.credentials.client.id"
    kafka_properties.use_java_client(kafka_properties.JavaClient("3.9.0", frozenset({"linger.ms", "added.in.a.later.release"})))
    try:
        assert kafka_properties.newer_than_client(newer) == (
            "can't be set: the Kafka client 3.9.0 of this Spark does not have this property; "
            "set clientId and clientSecret in sasl.jaas.config"
        )
        assert kafka_properties.newer_than_client("linger.ms") is kafka_properties.newer_than_client("of.a.plugin") is None
        assert is_known("added.in.a.later.release") and not is_known(newer)
    finally:
        kafka_properties.use_java_client(None)
    assert is_known(newer) and kafka_properties.newer_than_client(newer) is None
