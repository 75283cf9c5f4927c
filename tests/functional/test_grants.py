"""Grants become READ ACLs on a cluster with an authorizer, and a warning on a cluster without one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka.admin import ACLFilter, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePatternFilter, ResourceType

from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.kafka_client import acls
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from tests.services import Cluster

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def authorizing_cluster() -> Iterator[str]:
    with Cluster(properties=AUTHORIZER) as cluster:
        yield cluster.bootstrap_servers


def principals(servers: str, topic: str) -> list[tuple[str, str]]:
    pattern = ResourcePatternFilter(ResourceType.TOPIC, topic, ACLResourcePatternType.ANY)
    everything = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)
    with KafkaSettings(servers).admin() as admin:
        found, _ = admin.describe_acls(everything)
    return sorted((acl.principal, acl.operation.name) for acl in found)


def apply(servers: str, topic: str, *names: str) -> None:
    granted = acls.check("users", {"select": list(names)})
    assert granted is not None
    with KafkaSettings(servers).admin() as admin:
        acls.apply(admin, topic, granted)


def test_principals_are_added_and_revoked(authorizing_cluster: str, topic_name: str) -> None:
    apply(authorizing_cluster, topic_name, "ann", "User:bob")
    assert principals(authorizing_cluster, topic_name) == [("User:ann", "READ"), ("User:bob", "READ")]
    apply(authorizing_cluster, topic_name, "bob", "carl")
    assert principals(authorizing_cluster, topic_name) == [("User:bob", "READ"), ("User:carl", "READ")]
    apply(authorizing_cluster, topic_name)
    assert principals(authorizing_cluster, topic_name) == []


def test_cluster_without_an_authorizer_gives_a_warning(broker: str, topic_name: str) -> None:
    apply(broker, topic_name, "ann")
    with KafkaSettings(broker).admin() as admin:
        [warning] = acls.warnings(admin, topic_name)
    assert warning == (
        f"topic '{topic_name}': grants have no effect, because the cluster has no authorizer: every user can read it"
    )


def test_privilege_other_than_select_is_refused() -> None:
    with pytest.raises(OptionsError, match="users: grants has insert, own: only 'select' is allowed for a topic"):
        acls.check("users", {"select": ["ann"], "own": "bob", "insert": "bob"})


def test_model_without_grants_changes_no_acls() -> None:
    assert acls.check("users", {}) is None
