"""A secured Kafka broker: TLS with generated certificates, SASL, mutual TLS and an authorizer.

It has a SASL_SSL listener, an SSL listener, and a PLAINTEXT listener on which tests administrate it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.credentials import UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.embedded.node import LOOPBACK
from dbt.adapters.upsert_kafka.kafka_client.clients import export_secrets
from tests.certificates import PASSWORD, Certificates
from tests.services import Cluster, Service

CLIENT = "dbt-client"
"""Common name of the client's certificate, which is also its user."""
PLAIN = ("plainly", "plain-p4ssword")
"""User and password of SASL PLAIN."""
OAUTH = "by-token"
"""The user of SASL OAUTHBEARER."""
SASL_LOGIN = "org.apache.kafka.common.security"


class SecuredCluster(Service):
    """One broker with an authorizer that denies everything without an ACL."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="upsert-kafka-secured-")
        self.certificates = Certificates(Path(self._folder.name))
        self.certificates.authority()
        self.certificates.signed("broker")
        self.certificates.signed(CLIENT, stores=True)
        self.certificates["token"].write_text(self.certificates.token(OAUTH))
        # Kafka reads keys only from URLs in this system property.
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.certificates['jwks.json'].as_uri()}"
        self._cluster = Cluster(properties=self._properties(), secured=("SASL_SSL", "SSL"), jvm_flags=(allowed,))

    def start(self) -> None:
        self._cluster.start()

    def close(self) -> None:
        self._cluster.close()
        self._folder.cleanup()

    def _properties(self) -> dict[str, str]:
        sasl = "listener.name.sasl_ssl"
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates["broker.pem"]),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates["ca.pem"]),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            f"{sasl}.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER",
            f"{sasl}.scram-sha-256.sasl.jaas.config": f"{SASL_LOGIN}.scram.ScramLoginModule required;",
            f"{sasl}.scram-sha-512.sasl.jaas.config": f"{SASL_LOGIN}.scram.ScramLoginModule required;",
            f"{sasl}.plain.sasl.jaas.config": f'{SASL_LOGIN}.plain.PlainLoginModule required user_{PLAIN[0]}="{PLAIN[1]}";',
            f"{sasl}.oauthbearer.sasl.jaas.config": f"{SASL_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
            f"{sasl}.oauthbearer.sasl.server.callback.handler.class": (
                f"{SASL_LOGIN}.oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
            f"{sasl}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.certificates["jwks.json"].as_uri(),
        }

    @property
    def admin_servers(self) -> str:
        """The listener of the super user, for tests."""
        return self._cluster.bootstrap_servers

    @property
    def sasl_servers(self) -> str:
        return f"{LOOPBACK}:{self._cluster.ports['SASL_SSL']}"

    @property
    def mutual_servers(self) -> str:
        return f"{LOOPBACK}:{self._cluster.ports['SSL']}"

    def add_user(self, name: str, password: str) -> None:
        """Add a SCRAM user with both mechanisms."""
        mechanisms = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        with self.admin() as admin:
            upsertions = [UserScramCredentialUpsertion(name, mechanism, password.encode()) for mechanism in mechanisms]
            # One request each: Kafka accepts a user only once per request.
            for upsertion in upsertions:
                assert set(admin.alter_user_scram_credentials([upsertion]).values()) == {None}

    def allow(self, user: str, rights: Mapping[tuple[ResourceType, str], str]) -> None:
        """Grant operations, separated by spaces, by resource; returns when the broker applies them."""
        acls = [
            ACL(f"User:{user}", "*", ACLOperation[operation], ACLPermissionType.ALLOW, ResourcePattern(*resource))
            for resource, operations in rights.items()
            for operation in operations.split()
        ]
        anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
        of_user = ACLFilter(f"User:{user}", None, ACLOperation.ANY, ACLPermissionType.ANY, anything)
        with self.admin() as admin:
            assert not admin.create_acls(acls)["failed"]
            while not set(acls) <= set(admin.describe_acls(of_user)[0]):
                time.sleep(0.05)

    def admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.admin_servers)

    def sasl(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Client properties for a login with user and password."""
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{SASL_LOGIN}.{module} required username="{user}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates["ca.pem"]),
        }

    def oauth(self) -> dict[str, str]:
        """Client properties for a login with a token."""
        return {
            **self.sasl("", "", "OAUTHBEARER"),
            "sasl.jaas.config": f"{SASL_LOGIN}.oauthbearer.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{SASL_LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": self.certificates["token"].as_uri(),
        }

    def mutual(self, kind: str = "PEM") -> dict[str, str]:
        """Client properties for a login with a client certificate."""
        suffix = {"PEM": "pem", "PKCS12": "p12", "JKS": "jks"}[kind]
        stores = {"ssl.truststore": f"ca.{suffix}", "ssl.keystore": f"{CLIENT}.{suffix}"}
        passwords = {} if kind == "PEM" else {f"{store}.password": PASSWORD for store in stores}
        locations = {f"{store}.location": str(self.certificates[name]) for store, name in stores.items()}
        return {"security.protocol": "SSL", **{f"{store}.type": kind for store in stores}, **locations, **passwords}


def export(spark: SparkSession, properties: Mapping[str, str]) -> None:
    """Put the secrets into the environment of the running JVM. A JVM that dbt starts inherits them."""
    jvm: Any = spark._jvm
    inner = jvm.java.lang.Class.forName("java.util.Collections$UnmodifiableMap").getDeclaredField("m")
    inner.setAccessible(True)
    before = dict(os.environ)
    try:
        variables = export_secrets(UpsertKafkaCredentials(schema="a", bootstrap_servers="a:1", kafka=dict(properties)))
        for name, value in variables.items():
            inner.get(jvm.java.lang.System.getenv()).put(name, value)
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
