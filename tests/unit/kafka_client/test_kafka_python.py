"""Java's client properties as arguments of kafka-python's clients."""

from __future__ import annotations

import pickle

import pytest

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.kafka_client import kafka_python

SASL = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}


@pytest.mark.parametrize(
    ("written", "password"),
    [
        ('username="dbt" password="s3cret";', "s3cret"),
        ("username='dbt' password='s3 cret';", "s3 cret"),
        (r'username="dbt" password="a\"b\\c";', r'a"b\c'),
        ('username="dbt"\n  password = "a;b=c" ;', "a;b=c"),
        ("username=dbt password=s3cret;", "s3cret"),
    ],
)
def test_jaas_config_is_read_as_by_java(written: str, password: str) -> None:
    config = {**SASL, "sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {written}"}
    arguments = kafka_python.arguments("a:1", config)
    assert (arguments["sasl_plain_username"], arguments["sasl_plain_password"]) == ("dbt", password)
    assert arguments["security_protocol"] == "SASL_PLAINTEXT"
    assert kafka_python.user(config) == "user 'dbt'"


@pytest.mark.parametrize(
    ("line", "properties"),
    [
        ("sasl.mechanism PLAIN needs username and password in sasl.jaas.config", {"sasl.mechanism": "PLAIN"}),
        ("sasl.mechanism is 'SCRAM-SHA-1': must be one of AWS_MSK_IAM, GSSAPI", {"sasl.mechanism": "SCRAM-SHA-1"}),
        ("needs sasl.oauthbearer.token.endpoint.url", {"sasl.mechanism": "OAUTHBEARER"}),
    ],
)
def test_missing_or_wrong_sasl_property_is_named(line: str, properties: dict[str, str]) -> None:
    with pytest.raises(OptionsError, match=line):
        kafka_python.arguments("a:1", {"security.protocol": "SASL_SSL", **properties})


@pytest.mark.parametrize("place", ["jaas", "properties"])
def test_oauth_client_is_read_from_jaas_config_and_from_properties(place: str) -> None:
    client = "sasl.oauthbearer.client.credentials.client"
    where = {
        "jaas": {"sasl.jaas.config": 'X required clientId="dbt" clientSecret="s3cret" scope="kafka";'},
        "properties": {f"{client}.id": "dbt", f"{client}.secret": "s3cret", "sasl.oauthbearer.scope": "kafka"},
    }
    config = {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://a/token", **where[place]}
    provider = kafka_python.arguments("a:1", config)["sasl_oauth_token_provider"]
    assert (provider.client_id, provider.client_secret, provider.scope) == ("dbt", "s3cret", "kafka")
    assert kafka_python.user(config) == "user 'dbt'"


def test_tls_settings_can_be_pickled() -> None:
    tls = kafka_python.arguments("a:1", {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""})["ssl_context"]
    assert pickle.loads(pickle.dumps(tls)) == tls and not tls.checks_host
    assert kafka_python.user({"security.protocol": "SSL"}) == "the user of the client's certificate"


def test_cipher_suites_get_openssl_s_names() -> None:
    suites = "TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
    tls = kafka_python.arguments("a:1", {"security.protocol": "SSL", "ssl.cipher.suites": suites})["ssl_context"]
    assert tls.ciphers == "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-CHACHA20-POLY1305"
