"""`grants: {select: […]}` of a topic's model as Kafka's READ ACLs: added and revoked as dbt does with a table's grants.

Leaves the relations of Spark's catalog, which knows no users, to whoever runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.errors import KafkaError, NoError, SecurityDisabledError

from dbt.adapters.upsert_kafka.errors import OptionsError, UpsertKafkaError

SELECT = "select"


def check(model: str, grants: Mapping[str, Sequence[str] | str]) -> list[str] | None:
    """The principals that may read, or None where the model says nothing about it."""
    others = sorted(name for name in grants if name.lower() != SELECT)
    if others:
        raise OptionsError(f"{model}: grants has {', '.join(others)}: a topic can be read, so only '{SELECT}' is allowed")
    if not grants:
        return None
    [names] = grants.values()
    return [_principal(name) for name in ([names] if isinstance(names, str) else names)]


def apply(admin: KafkaAdminClient, topic: str, principals: Sequence[str]) -> list[str]:
    """Make those who may read the topic the given ones.

    Returns:
        What could not be done, as a warning.
    """
    try:
        found, _ = admin.describe_acls(_read(ACLFilter, topic, None))
    except SecurityDisabledError:
        return [f"topic '{topic}': grants have no effect, because the cluster has no authorizer: everybody may read it"]
    except KafkaError as error:
        reason = f"{type(error).__name__}; grants need ALTER on the cluster"
        raise UpsertKafkaError(f"topic '{topic}': its ACLs could not be read: {reason}") from error
    now = {acl.principal for acl in found}
    results = admin.create_acls([_read(ACL, topic, name) for name in principals if name not in now])
    failed = [failure.__name__ for failure in results["failed"]]
    for _, _, failure in admin.delete_acls([_read(ACLFilter, topic, name) for name in sorted(now - set(principals))]):
        failed += [failure.__name__] if failure is not NoError else []
    if failed:
        raise UpsertKafkaError(f"topic '{topic}': its ACLs could not be changed: {', '.join(failed)}")
    return []


def _read(kind: type[ACLFilter], topic: str, principal: str | None) -> ACLFilter:
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    return kind(principal, "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)


def _principal(name: str) -> str:
    return name if ":" in name else f"User:{name}"
