"""The properties that each client gets, without secrets in Spark's options and the catalog."""

from __future__ import annotations

import os
from pathlib import Path

import kafka
import pytest

from dbt.adapters.upsert_kafka.catalog import views
from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.kafka_client import reach
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings, export_secrets

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="dbt" password="s3cret";'
SECURED = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": JAAS,
    "ssl.truststore.password": "tr0st",
}


def test_options_of_spark_and_the_catalog_contain_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_python_client_gets_kafka_python_s_names() -> None:
    arguments = KafkaSettings("a:1,b:2", SECURED).python_client()
    assert arguments["bootstrap_servers"] == ["a:1", "b:2"]
    assert (arguments["sasl_plain_username"], arguments["sasl_plain_password"]) == ("dbt", "s3cret")
    assert (arguments["security_protocol"], arguments["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    only_admin = KafkaSettings("a:1", {"request.timeout.ms": "5000", "max.poll.records": "7", "linger.ms": "3"}).python_client()
    assert only_admin == {"bootstrap_servers": ["a:1"], "request_timeout_ms": 5000}


def test_config_provider_is_refused_for_the_python_client() -> None:
    with pytest.raises(OptionsError, match=r"properties: sasl.jaas.config refers to a config provider"):
        KafkaSettings("a:1", {"sasl.jaas.config": "${vault:kafka:jaas}"}).python_client()


def test_catalog_refers_to_the_file_with_the_embedded_broker_s_address() -> None:
    settings = KafkaSettings("127.0.0.1:4711", {}, Path("/p/.upsert_kafka/address.properties"))
    options = settings.catalog()
    assert options["kafka.bootstrap.servers"] == "${dbtfile:/p/.upsert_kafka/address.properties:bootstrap.servers}"
    assert "4711" not in str(options)
    assert settings.spark_source()["kafka.bootstrap.servers"] == "127.0.0.1:4711"


def test_readers_of_a_sinks_topic_read_committed_whatever_the_profile_says() -> None:
    settings = KafkaSettings("a:1", {"isolation.level": "read_uncommitted", "client.id": "me"})
    assert settings.spark_source()["kafka.isolation.level"] == "read_uncommitted", "a kafka_source may read uncommitted records"
    for options in (settings.committed().spark_source(), settings.committed().catalog(), views.whole_topic("t", settings)):
        assert (options["kafka.isolation.level"], options["kafka.client.id"]) == ("read_committed", "me")


def test_admin_client_is_closed_even_if_close_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def __init__(self, **_: object) -> None:
            self.closed = False

        def close(self) -> None:
            self.closed = True
            raise FileNotFoundError("as kafka-python may, see test_internals")

    monkeypatch.setattr(kafka, "KafkaAdminClient", Client)
    monkeypatch.setattr(reach, "check", lambda *_: None)
    with KafkaSettings("a:1").admin() as admin:
        pass
    assert admin.closed
