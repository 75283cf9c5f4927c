"""Connection settings of one cluster for each client: Spark's source and sink, catalog tables, kafka-python's clients.

The only module that decides where secrets are replaced by references. Leaves to `kafka_properties` which client takes which
property and to `kafka_python` what kafka-python calls it. Imports kafka-python when a client is needed: `dbt parse` needs none.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.upsert_kafka import embedded, kafka_properties
from dbt.adapters.upsert_kafka.credentials import EMBEDDED, UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import KafkaUnreachableError, MissingRightError

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

logger = AdapterLogger("upsert_kafka")
# kafka-python logs every failed connection. Users see one error of this adapter instead.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

READER_DEFAULTS = {
    # With Kafka's defaults Spark reads a topic at half the speed.
    "max.poll.records": "20000",
    "max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "fetch.max.bytes": str(64 * 1024 * 1024),
    # The last fetch of every task is empty; the default would make it wait for half a second.
    "fetch.max.wait.ms": "10",
    "isolation.level": "read_committed",
}
BOOTSTRAP_TIMEOUT_MS = 20_000
# Kafka's config providers. Their aliases must not be names that Spark SQL substitutes itself (env, system, …).
FROM_ENVIRONMENT, FROM_FILE = "dbtenv", "dbtfile"
PROVIDERS = {
    "config.providers": f"{FROM_ENVIRONMENT},{FROM_FILE}",
    f"config.providers.{FROM_ENVIRONMENT}.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    f"config.providers.{FROM_FILE}.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}


def export_secrets(credentials: UpsertKafkaCredentials) -> dict[str, str]:
    """Put the profile's secrets into this process's environment, which the JVM inherits.

    Returns:
        The variables, which the executors of a cluster need too.
    """
    variables = secret_variables(credentials)
    os.environ.update(variables)
    return variables


def secret_variables(credentials: UpsertKafkaCredentials) -> dict[str, str]:
    """The profile's secrets by the names of the environment variables from which Spark's processes read them."""
    return {_variable(name): value for name, value in credentials.kafka.items() if kafka_properties.holds_secret(name)}


def _variable(name: str) -> str:
    # Spark redacts variables with SECRET in their name in its UI and event log.
    return "DBT_UPSERT_KAFKA_SECRET_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


@dataclass(frozen=True)
class KafkaSettings:
    """Address and client properties of one cluster, named as in Java. A model's properties override the profile's."""

    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    address_file: Path | None = None
    """The file with the embedded broker's address, which may change from one process to the next."""

    @classmethod
    def of(
        cls,
        credentials: UpsertKafkaCredentials,
        bootstrap_servers: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> KafkaSettings:
        """The settings of the profile's cluster, or of the model's own. Starts the embedded broker if it is used."""
        merged = {**credentials.kafka, **(properties or {})}
        servers = bootstrap_servers or credentials.bootstrap_servers
        if servers != EMBEDDED:
            return cls(servers, merged)
        address = embedded.ensure_running(credentials.state_dir.parent)
        file = credentials.state_dir / "address.properties"
        line = f"bootstrap.servers={address}\n"
        if not file.is_file() or file.read_text() != line:
            file.write_text(line)
        return cls(address, merged, file)

    def committed(self) -> KafkaSettings:
        """The same cluster for readers of a sink's topic: they see committed records only, whatever the profile says."""
        return replace(self, properties={**self.properties, "isolation.level": "read_committed"})

    def catalog(self) -> dict[str, str]:
        """Options for a catalog table, which later processes read: references instead of secrets and of a changing address."""
        options = self.spark_source()
        if self.address_file is not None:
            options |= {
                "kafka.bootstrap.servers": f"${{{FROM_FILE}:{self.address_file}:bootstrap.servers}}",
                **_prefixed(PROVIDERS),
            }
        return options

    def spark_source(self) -> dict[str, str]:
        """Options for Spark's Kafka source."""
        return self._spark({**READER_DEFAULTS, **kafka_properties.split(self.properties).consumer})

    def spark_sink(self, **defaults: str) -> dict[str, str]:
        """Options for Spark's Kafka sink."""
        return self._spark({**defaults, **kafka_properties.split(self.properties).producer})

    @property
    def user(self) -> str:
        """The user that the cluster authenticates, for messages."""
        from dbt.adapters.upsert_kafka.kafka_client import kafka_python

        return kafka_python.user(self.properties)

    def python_client(self) -> dict[str, Any]:
        """Arguments for kafka-python's clients."""
        from dbt.adapters.upsert_kafka.kafka_client import kafka_python

        return kafka_python.arguments(self.bootstrap_servers, self.properties)

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        """An admin client that is closed on exit. It may be idle: it reconnects if the broker closed its connections.

        Raises:
            KafkaUnreachableError: no broker answered, or one refused the login.
        """
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        from dbt.adapters.upsert_kafka.kafka_client import reach
        from dbt.adapters.upsert_kafka.kafka_client.internals import close_connections

        arguments = self.python_client()
        reach.check(arguments, self.user)
        try:
            client = KafkaAdminClient(**{"bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS, **arguments})
        except KafkaError as error:
            logger.debug(f"admin client: {error!r}")
            message = (
                f"No Kafka broker answered at '{self.bootstrap_servers}' ({type(error).__name__}): "
                "check bootstrap_servers and the kafka: block of your profile, and that the cluster is running"
            )
            reach.remember(arguments, message)
            raise KafkaUnreachableError(message) from error
        try:
            yield client
        except MissingRightError as error:
            raise error.for_user(self.user) from None
        finally:
            close_connections(client)

    def _spark(self, properties: Mapping[str, str]) -> dict[str, str]:
        secrets = {
            name: f"${{{FROM_ENVIRONMENT}:{_variable(name)}}}"
            for name, value in properties.items()
            if kafka_properties.holds_secret(name) and "${" not in value
        }
        providers = PROVIDERS if secrets else {}
        return {"kafka.bootstrap.servers": self.bootstrap_servers, **_prefixed({**properties, **secrets, **providers})}


def _prefixed(properties: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in properties.items()}
