"""Kafka properties for each client, and no secret where others can read it."""

from __future__ import annotations

import os
import selectors
import socket
from pathlib import Path

import pytest
from kafka.net.selector import NetworkSelector

from dbt.adapters.upsert_kafka import kafka_clients
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings, export_secrets

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="dbt" password="s3cret";'
SECURED = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": JAAS,
    "ssl.truststore.password": "tr0st",
}


def test_no_secret_is_in_what_spark_and_the_catalog_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    settings = KafkaSettings("a:1", SECURED)
    for options in (settings.spark_source(), settings.spark_sink(), settings.catalog()):
        assert not any(secret in str(options) for secret in ("s3cret", "tr0st"))
        assert options["kafka.sasl.jaas.config"] == "${dbtenv:DBT_UPSERT_KAFKA_SECRET_SASL_JAAS_CONFIG}"
        assert options["kafka.security.protocol"] == "SASL_SSL"
    assert "s3cret" not in repr(settings)
    export_secrets(UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1", kafka=SECURED))
    assert os.environ["DBT_UPSERT_KAFKA_SECRET_SASL_JAAS_CONFIG"] == JAAS
    assert os.environ["DBT_UPSERT_KAFKA_SECRET_SSL_TRUSTSTORE_PASSWORD"] == "tr0st"


def test_the_python_client_gets_its_own_names() -> None:
    arguments = KafkaSettings("a:1,b:2", SECURED).python_client()
    assert arguments["bootstrap_servers"] == ["a:1", "b:2"]
    assert (arguments["sasl_plain_username"], arguments["sasl_plain_password"]) == ("dbt", "s3cret")
    assert (arguments["security_protocol"], arguments["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    only_admin = KafkaSettings("a:1", {"request.timeout.ms": "5000", "max.poll.records": "7", "linger.ms": "3"}).python_client()
    assert only_admin == {"bootstrap_servers": ["a:1"], "request_timeout_ms": 5000}


def test_a_reference_that_only_java_can_resolve_is_refused() -> None:
    with pytest.raises(OptionsError, match=r"properties: sasl.jaas.config refers to a config provider"):
        KafkaSettings("a:1", {"sasl.jaas.config": "${vault:kafka:jaas}"}).python_client()


def test_the_embedded_brokers_address_is_looked_up_when_the_view_is_read() -> None:
    settings = KafkaSettings("127.0.0.1:4711", {}, Path("/p/.upsert_kafka/address.properties"))
    options = settings.catalog()
    assert options["kafka.bootstrap.servers"] == "${dbtfile:/p/.upsert_kafka/address.properties:bootstrap.servers}"
    assert "4711" not in str(options)
    assert settings.spark_source()["kafka.bootstrap.servers"] == "127.0.0.1:4711"


def test_a_client_that_fails_when_it_is_closed_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def __init__(self, **_: object) -> None:
            self.closed = False

        def close(self) -> None:
            """As kafka-python's may."""
            self.closed = True
            here, _there = socket.socketpair()
            net = NetworkSelector()
            for event in (selectors.EVENT_READ, selectors.EVENT_WRITE):
                net.register_event(here, event, lambda: None)
            here.close()
            net.unregister_event(here, selectors.EVENT_READ)
            raise AssertionError("kafka-python no longer fails here: the care can go")

    monkeypatch.setattr(kafka_clients, "KafkaAdminClient", Client)
    with KafkaSettings("a:1").admin() as admin:
        pass
    assert admin.closed
