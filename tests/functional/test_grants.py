"""Who may read a topic: READ ACLs on a cluster with an authorizer, a warning on one without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka.admin import ACLFilter, ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourcePatternFilter, ResourceType

from dbt.adapters.upsert_kafka import grants
from dbt.adapters.upsert_kafka.errors import OptionsError
from dbt.adapters.upsert_kafka.kafka_clients import KafkaSettings
from tests.services import Cluster

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    with Cluster(properties=AUTHORIZER) as cluster:
        yield cluster.bootstrap_servers


def principals(servers: str, topic: str) -> list[tuple[str, str]]:
    pattern = ResourcePatternFilter(ResourceType.TOPIC, topic, ACLResourcePatternType.ANY)
    everything = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)
    with KafkaSettings(servers).admin() as admin:
        found, _ = admin.describe_acls(everything)
    return sorted((acl.principal, acl.operation.name) for acl in found)


def apply(servers: str, topic: str, *names: str) -> list[str]:
    wanted = grants.check("users", {"select": list(names)})
    assert wanted is not None
    with KafkaSettings(servers).admin() as admin:
        return grants.apply(admin, topic, wanted)


def test_principals_are_added_and_those_that_left_are_revoked(guarded: str, topic_name: str) -> None:
    assert apply(guarded, topic_name, "ann", "User:bob") == []
    assert principals(guarded, topic_name) == [("User:ann", "READ"), ("User:bob", "READ")]
    apply(guarded, topic_name, "bob", "carl")
    assert principals(guarded, topic_name) == [("User:bob", "READ"), ("User:carl", "READ")]
    apply(guarded, topic_name)
    assert principals(guarded, topic_name) == []


def test_a_cluster_without_an_authorizer_is_a_warning(broker: str, topic_name: str) -> None:
    [warning] = apply(broker, topic_name, "ann")
    assert warning == (
        f"topic '{topic_name}': grants have no effect, because the cluster has no authorizer: everybody may read it"
    )


def test_another_privilege_than_select_is_refused() -> None:
    with pytest.raises(OptionsError, match="users: grants has insert, own: a topic can be read, so only 'select' is allowed"):
        grants.check("users", {"select": ["ann"], "own": "bob", "insert": "bob"})


def test_no_grants_say_nothing_about_who_may_read() -> None:
    assert grants.check("users", {}) is None
