"""IAM in Amazon MSK: kafka-python signs tokens with AWS credentials. Signing needs no network."""

from __future__ import annotations

import base64
import pickle
from urllib.parse import parse_qs, urlsplit

import pytest

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.kafka_client import kafka_python
from dbt.adapters.upsert_kafka.kafka_client.oauth import MskTokenProvider

PROFILE = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")


@pytest.mark.parametrize(
    ("server", "region"),
    [
        ("b-1.shop.abcdef.c2.kafka.eu-west-1.amazonaws.com:9098", "eu-west-1"),
        ("boot-abc123.c1.kafka-serverless.us-east-2.amazonaws.com:9098", "us-east-2"),
    ],
)
def test_token_is_signed_for_the_region_of_the_servers(server: str, region: str) -> None:
    arguments = kafka_python.arguments(server, PROFILE)
    assert arguments["sasl_mechanism"] == "OAUTHBEARER"
    provider = pickle.loads(pickle.dumps(arguments["sasl_oauth_token_provider"]))
    token = provider.token()
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    query = parse_qs(url.query)
    assert url.hostname == f"kafka.{region}.amazonaws.com" and query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/") and "s3cret" not in url.query
    assert provider.token() == token, "a token is used until it expires"


def test_role_and_profile_are_read_from_the_jaas_config() -> None:
    role = (
        'software.amazon.msk.auth.iam.IAMLoginModule required awsRoleArn="arn:aws:iam::1:role/dbt" awsRoleSessionName="nightly";'
    )
    server = "b-1.shop.abcdef.c2.kafka.eu-west-1.amazonaws.com:9098"
    assert kafka_python.arguments(server, {**PROFILE, "sasl.jaas.config": role})["sasl_oauth_token_provider"] == (
        MskTokenProvider("eu-west-1", "arn:aws:iam::1:role/dbt", "nightly")
    )
    profile = 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="shop";'
    assert kafka_python.arguments(server, {**PROFILE, "sasl.jaas.config": profile})["sasl_oauth_token_provider"] == (
        MskTokenProvider("eu-west-1", profile="shop")
    )


def test_missing_region_and_missing_package_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionsError, match="bootstrap_servers names no AWS region; set AWS_REGION"):
        kafka_python.arguments("127.0.0.1:9098", PROFILE)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert kafka_python.arguments("127.0.0.1:9098", PROFILE)["sasl_oauth_token_provider"].region == "eu-west-1"
    monkeypatch.setattr(kafka_python.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OptionsError, match=r"pip install 'dbt-upsert-kafka\[aws\]'"):
        kafka_python.arguments("127.0.0.1:9098", PROFILE)


@pytest.mark.parametrize("option", ["awsRoleExternalId", "awsStsRegion"])
def test_option_that_only_the_java_client_has_is_refused(option: str) -> None:
    config = f'software.amazon.msk.auth.iam.IAMLoginModule required awsRoleArn="arn:aws:iam::1:role/dbt" {option}="a";'
    server = "b-1.shop.abcdef.c2.kafka.eu-west-1.amazonaws.com:9098"
    with pytest.raises(OptionsError, match=rf"sasl\.jaas\.config has {option}, which AWS's library for Python does not"):
        kafka_python.arguments(server, {**PROFILE, "sasl.jaas.config": config})
    harmless = PROFILE["sasl.jaas.config"].replace(";", ' awsDebugCreds="true" awsMaxRetries="5";')
    assert kafka_python.arguments(server, {**PROFILE, "sasl.jaas.config": harmless})
