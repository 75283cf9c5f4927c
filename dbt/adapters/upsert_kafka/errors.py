"""The errors that users see: one class per stage of a run, every message one that says what to change.

Internals (Java stack traces, Py4J) never become part of a message; they go to the debug log.
"""

from __future__ import annotations

from dbt_common.exceptions import DbtRuntimeError


class UpsertKafkaError(DbtRuntimeError):
    """Base of all errors that this adapter raises itself."""


class OptionsError(UpsertKafkaError):
    """A model's options are wrong; nothing was touched."""


class GuardError(UpsertKafkaError):
    """A change was refused; the topic is untouched."""


class KafkaUnreachableError(UpsertKafkaError):
    """No broker answered."""


class MissingRightError(UpsertKafkaError):
    """The cluster's authorizer denies an operation.

    Args:
        kind: of resource, as Kafka's ACLs call it: topic, group, transactional id, cluster.
    """

    def __init__(self, operation: str, kind: str, name: str, user: str = "this user") -> None:
        self.denied = (operation, kind, name)
        super().__init__(f"{lacks(user, *self.denied)}; docs/security.md lists the rights that a model needs")

    def of(self, user: str) -> MissingRightError:
        """The same, said of somebody."""
        return MissingRightError(*self.denied, user)


def lacks(user: str, operation: str, kind: str, name: str) -> str:
    return f"{user} lacks {operation} on {kind} '{name}': grant it"


class DeliveryError(UpsertKafkaError):
    """Writing failed; the message says what the topic holds now and what the next run repairs."""


class EmbeddedBrokerError(UpsertKafkaError):
    """The project's own broker could not be fetched, started or found."""


class SchemaRegistryError(UpsertKafkaError):
    """The schema registry refused or did not answer."""
