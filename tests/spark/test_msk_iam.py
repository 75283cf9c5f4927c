"""IAM in Amazon MSK: the first bytes that each Kafka client of a run sends to log in. No request leaves the machine."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import java
from dbt.adapters.upsert_kafka.kafka_client import kafka_python
from dbt.adapters.upsert_kafka.sinks import transaction
from dbt.adapters.upsert_kafka.spark.settings import MSK_IAM_JAR
from tests.login_server import LoginServer

PROFILE = {
    "security.protocol": "SASL_PLAINTEXT",  # MSK's is SASL_SSL
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
KEY, SECRET, REGION = "AKIDEXAMPLE", "s3cret-of-aws", "eu-west-1"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoginServer]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", REGION)
    with LoginServer() as server:
        yield server


def check_token(login: tuple[str, bytes]) -> None:
    """Check the login of kafka-python: a presigned URL of AWS in the place of an OAuth token."""
    mechanism, sent = login
    assert mechanism == "OAUTHBEARER" and SECRET.encode() not in sent
    token = sent.decode().split("auth=Bearer ")[1].strip("\x01")
    url = urlsplit(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    query = parse_qs(url.query)
    assert url.hostname == f"kafka.{REGION}.amazonaws.com" and query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Credential"][0].startswith(f"{KEY}/") and query["X-Amz-Signature"]


def test_kafka_python_logs_in_with_a_signed_token(server: LoginServer) -> None:
    with pytest.raises(KafkaError):
        KafkaAdminClient(**kafka_python.arguments(server.address, PROFILE), bootstrap_timeout_ms=5000)
    check_token(server.logins[0])


def test_worker_of_a_transaction_logs_in_with_a_signed_token(spark: SparkSession, server: LoginServer) -> None:
    assert transaction.oauth  # registers what workers get by value
    arguments = kafka_python.arguments(server.address, PROFILE)
    credentials = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def log_in(batches: Any) -> Any:
        import os

        os.environ.update(credentials)  # the workers of this session were started before
        for _ in batches:
            try:
                transaction.protocol.Client(arguments, timeout=5).close()
                accepted = True
            except KafkaError:
                accepted = False
            yield pa.RecordBatch.from_pydict({"accepted": [accepted]})

    [row] = spark.range(1).coalesce(1).mapInArrow(log_in, "accepted boolean").collect()
    assert not row.accepted
    check_token(server.logins[0])


def test_java_client_logs_in_with_the_jar_of_aws(spark: SparkSession, server: LoginServer) -> None:
    [jar] = java.fetch_files("jars", [MSK_IAM_JAR])  # checks its SHA-256
    jvm: Any = spark._jvm
    thread, system = jvm.Thread.currentThread(), jvm.System
    former = thread.getContextClassLoader()
    urls = spark._sc._gateway.new_array(jvm.java.net.URL, 1)  # type: ignore[union-attr]
    urls[0] = jvm.java.net.URL(Path(jar).as_uri())
    for name, value in (("aws.accessKeyId", KEY), ("aws.secretAccessKey", SECRET), ("aws.region", REGION)):
        system.setProperty(name, value)
    try:
        thread.setContextClassLoader(jvm.java.net.URLClassLoader(urls, former))
        settings = {
            **PROFILE,
            "bootstrap.servers": server.address,
            "default.api.timeout.ms": "8000",
            "request.timeout.ms": "8000",
        }
        client = jvm.org.apache.kafka.clients.admin.Admin.create(jvm.java.util.HashMap(settings))
        with pytest.raises(Py4JJavaError, match=r"SaslAuthenticationException.*refused by the test"):
            client.describeCluster().nodes().get()
        client.close(jvm.java.time.Duration.ZERO)
    finally:
        thread.setContextClassLoader(former)
        for name in ("aws.accessKeyId", "aws.secretAccessKey", "aws.region"):
            system.clearProperty(name)
    mechanism, sent = server.logins[0]
    payload = json.loads(sent)
    assert mechanism == "AWS_MSK_IAM" and payload["action"] == "kafka-cluster:Connect" and payload["x-amz-signature"]
    assert payload["x-amz-credential"].startswith(f"{KEY}/") and f"/{REGION}/" in payload["x-amz-credential"]
    assert SECRET.encode() not in sent
