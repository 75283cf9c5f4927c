"""Applies `grants: {select: […]}` of a model to its topic as READ ACLs: adds and revokes them as dbt does with a table's grants.

Relations in Spark's catalog get no grants, because the catalog has no users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.errors import KafkaError, NoError, SecurityDisabledError

from dbt.adapters.upsert_kafka.errors import OptionsError, UpsertKafkaError

SELECT = "select"


def check(model: str, grants: Mapping[str, Sequence[str] | str]) -> tuple[str, ...] | None:
    """The principals to which the model grants `select`; None if it has no grants."""
    others = sorted(name for name in grants if name.lower() != SELECT)
    if others:
        raise OptionsError(f"{model}: grants has {', '.join(others)}: only '{SELECT}' is allowed for a topic")
    if not grants:
        return None
    [names] = grants.values()
    return tuple(_principal(name) for name in ([names] if isinstance(names, str) else names))


def warnings(admin: KafkaAdminClient, topic: str) -> list[str]:
    """Why grants will have no effect. Called before the topic is written."""
    if _readers(admin, topic) is None:
        return [f"topic '{topic}': grants have no effect, because the cluster has no authorizer: every user can read it"]
    return []


def apply(admin: KafkaAdminClient, topic: str, principals: Sequence[str]) -> None:
    """Give READ on the topic to these principals and revoke it from all others; nothing if the cluster has no authorizer."""
    current = _readers(admin, topic)
    if current is None:
        return
    results = admin.create_acls([_read(ACL, topic, name) for name in principals if name not in current])
    failed = [failure.__name__ for failure in results["failed"]]
    for _, _, failure in admin.delete_acls([_read(ACLFilter, topic, name) for name in sorted(current - set(principals))]):
        failed += [failure.__name__] if failure is not NoError else []
    if failed:
        raise UpsertKafkaError(f"topic '{topic}': its ACLs could not be changed: {', '.join(failed)}")


def _readers(admin: KafkaAdminClient, topic: str) -> set[str] | None:
    """The principals that an ACL of the topic gives READ to; None if the cluster has no authorizer."""
    try:
        found, _ = admin.describe_acls(_read(ACLFilter, topic, None))
    except SecurityDisabledError:
        return None
    except KafkaError as error:
        raise UpsertKafkaError(
            f"topic '{topic}': its ACLs could not be read: {type(error).__name__}. Grants need ALTER on the cluster."
        ) from error
    return {acl.principal for acl in found}


def _read(kind: type[ACLFilter], topic: str, principal: str | None) -> ACLFilter:
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    return kind(principal, "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)


def _principal(name: str) -> str:
    return name if ":" in name else f"User:{name}"
