"""Kafka client properties, translated once: the names of Java's clients to Spark options and kafka-python arguments.

The one place that knows which client takes which property, and where secrets are kept out of what others can read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

READER_DEFAULTS = {
    # Spark's own defaults read a topic at half the speed.
    "max.poll.records": "20000",
    "max.partition.fetch.bytes": str(16 * 1024 * 1024),
    "fetch.max.bytes": str(64 * 1024 * 1024),
}


@dataclass(frozen=True)
class KafkaSettings:
    """How to reach one cluster: the profile's properties with the model's on top, in the spelling of Java's clients."""

    bootstrap_servers: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def spark_source(self) -> dict[str, str]:
        """Options for Spark's Kafka source."""
        properties = {**READER_DEFAULTS, "isolation.level": "read_committed", **self.properties}
        return self._spark(properties)

    def spark_sink(self, **defaults: str) -> dict[str, str]:
        """Options for Spark's Kafka sink."""
        return self._spark({**defaults, **self.properties})

    def python_client(self) -> dict[str, object]:
        """Arguments for kafka-python's clients."""
        raise NotImplementedError

    def _spark(self, properties: Mapping[str, str]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap_servers} | {f"kafka.{k}": v for k, v in properties.items()}
