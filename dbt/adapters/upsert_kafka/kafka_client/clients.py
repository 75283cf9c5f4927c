"""How each client reaches one cluster: Spark's source and sink, views of later processes, kafka-python's clients.

The one place that decides where secrets are kept out of what others can read. Leaves to `kafka_properties` which client takes
which property and to `kafka_python` what kafka-python calls it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from dbt.adapters.upsert_kafka import embedded, kafka_properties, kafka_python, login
from dbt.adapters.upsert_kafka.credentials import EMBEDDED, UpsertKafkaCredentials
from dbt.adapters.upsert_kafka.errors import KafkaUnreachableError, MissingRightError

logger = AdapterLogger("upsert_kafka")
# What goes wrong in a client reaches the user as an error of ours, once.
logging.getLogger("kafka").setLevel(logging.CRITICAL)

READER_DEFAULTS = {
    # Spark's own defaults read a topic at half the speed.
    "max.poll.records": "20000",
    "max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "fetch.max.bytes": str(64 * 1024 * 1024),
    # Every task asks once more than there are records, and would wait half a second for others to come.
    "fetch.max.wait.ms": "10",
    "isolation.level": "read_committed",
}
BOOTSTRAP_TIMEOUT_MS = 20_000
# Kafka's own config providers. Their aliases are none of those that Spark SQL would resolve itself (env, system, …).
FROM_ENVIRONMENT, FROM_FILE = "dbtenv", "dbtfile"
PROVIDERS = {
    "config.providers": f"{FROM_ENVIRONMENT},{FROM_FILE}",
    f"config.providers.{FROM_ENVIRONMENT}.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    f"config.providers.{FROM_FILE}.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}


def export_secrets(credentials: UpsertKafkaCredentials) -> dict[str, str]:
    """Hand the profile's secrets to the JVM that will be started, through its environment and nowhere else.

    Returns:
        The variables, which the executors of a cluster need too.
    """
    variables = secret_variables(credentials)
    os.environ.update(variables)
    return variables


def secret_variables(credentials: UpsertKafkaCredentials) -> dict[str, str]:
    """The profile's secrets by the environment variables in which Spark's processes look for them."""
    return {_variable(name): value for name, value in credentials.kafka.items() if kafka_properties.holds_secret(name)}


def _variable(name: str) -> str:
    # Spark redacts what is called a secret in its UI and event log.
    return "DBT_UPSERT_KAFKA_SECRET_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


@dataclass(frozen=True)
class KafkaSettings:
    """How to reach one cluster: the profile's properties with the model's on top, in the spelling of Java's clients."""

    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    address_file: Path | None = None
    """Where the embedded broker's address stands, which may be another in the next process."""

    @classmethod
    def of(
        cls,
        credentials: UpsertKafkaCredentials,
        bootstrap_servers: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> KafkaSettings:
        """The profile's cluster, or a model's own; the embedded broker is up when this returns."""
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

    def catalog(self) -> dict[str, str]:
        """Options for a catalog table that a later process reads: no secret, and no address that may be another by then."""
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
        """Who the cluster takes us for, in messages."""
        return kafka_python.user(self.properties)

    def python_client(self) -> dict[str, Any]:
        """Arguments for kafka-python's clients."""
        return kafka_python.arguments(self.bootstrap_servers, self.properties)

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        """An admin client that is closed afterwards; a cluster out of reach is one clear line."""
        arguments = self.python_client()
        login.check(arguments, self.user)
        try:
            client = KafkaAdminClient(**{"bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS, **arguments})
        except KafkaError as error:
            logger.debug(f"admin client: {error!r}")
            raise KafkaUnreachableError(
                f"No Kafka broker answered at '{self.bootstrap_servers}' ({type(error).__name__}): "
                "check bootstrap_servers and the kafka: block of your profile, and that the cluster is up"
            ) from error
        try:
            yield client
        except MissingRightError as error:
            raise error.of(self.user) from None
        finally:
            # kafka-python fails at a socket that is waited for both ways when it is closed; closed it is all the same.
            with suppress(OSError):
                client.close()

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
