"""The configuration of the cluster's brokers. Leaves to `topics` what a topic is configured to."""

from __future__ import annotations

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from dbt.adapters.upsert_kafka.kafka_client.internals import describe_cluster


def config(admin: KafkaAdminClient) -> dict[str, str]:
    """The configuration of one broker; empty if the user lacks the right to read it."""
    broker = str(describe_cluster(admin)["brokers"][0]["broker_id"])
    found = admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, broker)], config_filter="all")
    return {name: entry["value"] for name, entry in found["broker"][broker].items()}
