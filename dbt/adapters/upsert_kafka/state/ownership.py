"""Who may publish to a topic: its owner, or anybody who takes an unowned topic without changing what is in it.

Leaves to `trust` whether the record of an owner still counts.
"""

from __future__ import annotations

from dbt.adapters.upsert_kafka.errors import GuardError, count_of
from dbt.adapters.upsert_kafka.state.record import Owner
from dbt.adapters.upsert_kafka.state.trust import Trusted

UNTOUCHED = "Nothing was written; the topic is untouched."


def check_owner(me: Owner, topic: str, trusted: Trusted) -> None:
    """Refuse a topic that another model owns, before anything is computed.

    Raises:
        GuardError: names the owner, its environment and its last run.
    """
    if trusted.owner is None or trusted.owner == me:
        return
    last = f" (last run: {trusted.run})" if trusted.run else ""
    raise GuardError(
        f"model {me.model}: topic '{topic}' is owned by {trusted.owner}{last}, and this is {me}. {UNTOUCHED} "
        f"Set another `topic`, or `topic_prefix` in the profile, or take the topic over: {adopt(me)}"
    )


def check_unowned(me: Owner, topic: str, trusted: Trusted, changed: int, deleted: int) -> None:
    """Refuse to change or delete keys of a topic that nobody owns. A run that only adds becomes the owner.

    Args:
        changed: keys that would get another value.
        deleted: keys that would be deleted.

    Raises:
        GuardError: with the counts.
    """
    if trusted.owner is not None or not (changed or deleted):
        return
    raise GuardError(
        f"model {me.model}: topic '{topic}' has no owner in the state topic, and this run would change "
        f"{count_of(changed, 'key')} and delete {count_of(deleted, 'key')} that something else wrote: another application, or an "
        f"earlier version of dbt-upsert-kafka. {UNTOUCHED} If the topic belongs to this model: {adopt(me)}"
    )


def check_unreadable(me: Owner, state_topic: str, changed: int, deleted: int) -> None:
    """Refuse to change or delete keys if nobody can tell whose they are.

    Raises:
        GuardError: with the counts.
    """
    if not (changed or deleted):
        return
    raise GuardError(
        f"model {me.model}: this user may not read the state topic '{state_topic}', so the topic's owner is not known. This "
        f"run would change {count_of(changed, 'key')} and delete {count_of(deleted, 'key')}. {UNTOUCHED} Grant READ, WRITE and "
        "CREATE on the state topic, or set `state_topic: none` in the profile to publish without owners"
    )


def adopt(me: Owner) -> str:
    """The command that makes a model the owner of its topic."""
    return f"`dbt run-operation adopt_topic --args '{{model: {me.model}}}'`"
