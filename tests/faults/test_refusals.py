"""What a broker refuses, told in one clear line by both sinks."""

from __future__ import annotations

import pytest
from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

from dbt.adapters.upsert_kafka.errors import DeliveryError
from tests.faults.scene import Scene, python_workers, stopped

both = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
MANY = 20_000
SOON = {"delivery_timeout_ms": "5000", "request_timeout_ms": "2000", "linger_ms": "0", "max_block_ms": "5000"}


def refused(scene: Scene, guarantee: str, line: str, value: str = "id", **properties: str) -> None:
    """Delivering ends in that line and nothing else."""
    with pytest.raises(DeliveryError, match=line) as refusal:
        scene.deliver(scene.rows(10, value), guarantee, **properties)
    told = str(refusal.value)
    assert f"Topic '{scene.topic}'" in told and "Exception" not in told and "org.apache" not in told
    assert told.strip().count("\n") <= 1  # dbt puts its own "Runtime Error" above
    assert scene.records() == []


@both
def test_message_too_large(scene: Scene, guarantee: str) -> None:
    scene.recreate({"max.message.bytes": "2000"})
    noise = "array_join(transform(sequence(1, 100), i -> sha2(concat(id, i), 512)), '')"
    refused(scene, guarantee, "a message is larger than allowed", value=noise, **SOON)


@both
def test_topic_that_may_not_be_written(scene: Scene, guarantee: str) -> None:
    topic = ResourcePattern(ResourceType.TOPIC, scene.topic)
    allowed = (ACLOperation.READ, ACLOperation.DESCRIBE, ACLOperation.DESCRIBE_CONFIGS)
    scene.admin.create_acls([ACL("User:ANONYMOUS", "*", operation, ACLPermissionType.ALLOW, topic) for operation in allowed])
    refused(scene, guarantee, "may not write to the topic", **SOON)


@both
def test_topic_that_is_deleted_during_the_write(scene: Scene, guarantee: str) -> None:
    with scene.delivering(scene.rows(MANY), guarantee, **SOON) as delivery:
        with stopped(*python_workers()):
            scene.delete()
        scene.go_on()
        with pytest.raises(DeliveryError, match="the topic was deleted"):
            delivery.result()


@both
def test_broker_out_of_reach(scene: Scene, guarantee: str) -> None:
    [broker] = scene.cluster.brokers
    with scene.delivering(scene.rows(MANY), guarantee, **SOON) as delivery:
        broker.kill()
        try:
            with pytest.raises(DeliveryError, match=r"no broker answer|did not answer in time"):
                delivery.result()
        finally:
            broker.start()
            scene.go_on()
