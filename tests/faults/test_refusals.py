"""Writes that a broker refuses: both sinks report the cause in one line."""

from __future__ import annotations

import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

from dbt.adapters.upsert_kafka.errors import DeliveryError
from tests.faults.scene import Scene, python_workers, stopped

both = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
MANY = 20_000
SOON = {"delivery_timeout_ms": "5000", "request_timeout_ms": "2000", "linger_ms": "0", "max_block_ms": "5000"}


def refused(scene: Scene, guarantee: str, line: str, value: str = "id", **properties: str) -> None:
    """Assert that the delivery fails with this line, without a stack trace, and that nothing is visible."""
    with pytest.raises(DeliveryError, match=line) as refusal:
        scene.deliver(scene.rows(10, value), guarantee, **properties)
    message = str(refusal.value)
    assert f"Topic '{scene.topic}'" in message and "Exception" not in message and "org.apache" not in message
    assert message.strip().count("\n") <= 1  # dbt adds the line "Runtime Error"
    assert scene.records() == []


@both
def test_message_that_is_too_large_is_reported(scene: Scene, guarantee: str) -> None:
    scene.recreate({"max.message.bytes": "2000"})
    noise = "array_join(transform(sequence(1, 100), i -> sha2(concat(id, i), 512)), '')"
    refused(scene, guarantee, "a message is larger than allowed", value=noise, **SOON)


@both
def test_missing_write_permission_is_reported(scene: Scene, guarantee: str) -> None:
    topic = ResourcePattern(ResourceType.TOPIC, scene.topic)
    allowed = (ACLOperation.READ, ACLOperation.DESCRIBE, ACLOperation.DESCRIBE_CONFIGS)
    scene.admin.create_acls([ACL("User:ANONYMOUS", "*", operation, ACLPermissionType.ALLOW, topic) for operation in allowed])
    refused(scene, guarantee, "may not write to the topic", **SOON)


@both
def test_deletion_of_the_topic_during_the_write_is_reported(scene: Scene, guarantee: str) -> None:
    with scene.delivering(scene.rows(MANY), guarantee, **SOON) as delivery:
        with stopped(*python_workers()):
            scene.delete()
        scene.go_on()
        with pytest.raises(DeliveryError, match="the topic was deleted"):
            delivery.result()


@both
def test_broker_that_is_killed_during_the_write_is_reported(scene: Scene, guarantee: str) -> None:
    [broker] = scene.cluster.brokers
    with scene.delivering(scene.rows(MANY), guarantee, **SOON) as delivery:
        broker.kill()
        try:
            with pytest.raises(DeliveryError, match=r"no broker answer|did not answer in time"):
                delivery.result()
        finally:
            broker.start()
            scene.go_on()
