"""The errors that users see: one class per stage of a run. Every message names what to change.

Java stack traces and Py4J errors never become part of a message; they go to the debug log.
"""

from __future__ import annotations

import json
import re

from dbt_common.exceptions import DbtRuntimeError, env_secrets

STOPPED = "The command was stopped."


class UpsertKafkaError(DbtRuntimeError):
    """Base class of all errors that this adapter raises."""


class JarsNotFoundError(UpsertKafkaError):
    """The Maven repository answers, but lacks jars.

    Args:
        name: what needs the jars.
        jars: their file names.
    """

    def __init__(self, name: str, jars: list[str], remedy: str = "Name files that you have with `jars:` in the profile.") -> None:
        self.jars = jars
        super().__init__(f"The Maven repository does not have {' and '.join(jars)}, which {name} needs. {remedy}")


class OptionsError(UpsertKafkaError):
    """A model's options are wrong; nothing was changed."""


class GuardError(UpsertKafkaError):
    """A change was refused; the topic is unchanged."""


class WarningError(UpsertKafkaError):
    """A warning that the flags of dbt make an error; nothing was written."""


class KafkaUnreachableError(UpsertKafkaError):
    """No broker answered, or none accepted the client."""


class MissingRightError(UpsertKafkaError):
    """The cluster's authorizer denies an operation.

    Args:
        kind: the kind of resource, in the words of Kafka's ACLs: topic, group, transactional id, cluster.
    """

    def __init__(self, operation: str, kind: str, name: str, user: str = "this user") -> None:
        self.denied = (operation, kind, name)
        super().__init__(f"{lacks(user, *self.denied)}; docs/security.md lists the rights that a model needs")

    def for_user(self, user: str) -> MissingRightError:
        """The same error with the user's name."""
        return MissingRightError(*self.denied, user)


def lacks(user: str, operation: str, kind: str, name: str) -> str:
    """The sentence about a missing right, for messages."""
    return f"{user} lacks {operation} on {kind} '{name}': grant it"


def kafka_error_text(error: Exception) -> str:
    """The name of a kafka-python error and Kafka's description of it, which only errors that a broker returned have."""
    description = getattr(error, "description", None)
    return f"{type(error).__name__}, {description}" if description else type(error).__name__


class DeliveryError(UpsertKafkaError):
    """Writing failed; the message says what the topic contains now and what the next run repairs."""


class TopicMovedError(DeliveryError):
    """The topic or its state record is not as the run compared with it. Nothing was written, so the run may compare again.

    Args:
        happened: what changed, in words that fit between the topic's name and "during each of 3 comparisons".
    """

    def __init__(self, topic: str, happened: str) -> None:
        super().__init__(f"Topic '{topic}' {happened}. Nothing was written.")
        self.happened = happened


class EmbeddedBrokerError(UpsertKafkaError):
    """The embedded broker could not be downloaded, started or found."""


class SchemaRegistryError(UpsertKafkaError):
    """The schema registry refused or did not answer."""


class IncompatibleSchemaError(SchemaRegistryError):
    """The schema registry does not accept the schema of a model's columns."""


class StateError(UpsertKafkaError):
    """The state topic or a record in it can't be used; nothing was published."""


def count_of(number: int, noun: str, verb: str = "", plural_verb: str | None = None) -> str:
    """A count with its noun, and the verb that agrees with it, for messages.

    >>> count_of(1, "row", "has", "have"), count_of(2, "row", "has", "have"), count_of(0, "key")
    ('1 row has', '2 rows have', '0 keys')
    """
    if number == 1:
        return f"1 {noun} {verb}".rstrip()
    return f"{number} {noun}s {verb if plural_verb is None else plural_verb}".rstrip()


def in_one_line(error: BaseException | None, otherwise: str) -> str:
    """The message of an error of dbt in one line, without headings such as "Runtime Error"; `otherwise` if it has none.

    >>> in_one_line(ValueError("Runtime Error\\n  No target x. The names are:\\n   - dev\\n   - prod"), "")
    'No target x. The names are: dev, prod'
    """
    text = ""
    for line in str(error or otherwise).splitlines():
        shown = re.sub(r"(^|(?<=: ))[A-Z][a-z]+ Error$", "", line.strip()).strip()
        item = shown.removeprefix("- ")
        if item:
            comma = "," if item != shown and text and not text.endswith(":") else ""
            text = f"{text}{comma} {item}".strip()
    return text or otherwise


def without_secrets(text: str) -> str:
    """The text without the values of DBT_ENV_SECRET_ variables, also where they are part of a JSON string."""
    for secret in sorted(env_secrets(), key=len, reverse=True):
        for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
            text = text.replace(form, "*****")
    return text
