"""What a run does about a topic whose settings differ from the model: dbt's `on_configuration_change`, where the user set it.

`apply` alters the topic before anything is published, `continue` leaves it as it is, `fail` refuses the run. Without the setting
the run warns. Leaves to `kafka_client.topic_drift` which changes lose no data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.errors import GuardError, TopicMovedError
from dbt.adapters.upsert_kafka.kafka_client import topic_drift, topics
from dbt.adapters.upsert_kafka.kafka_client.topic_drift import CLEANUP, PARTITIONS, Drift
from dbt.adapters.upsert_kafka.kafka_client.topics import READ_UNCOMMITTED, Topic, TopicSettings

SETTING = "on_configuration_change"
APPLY, CONTINUE, FAIL, WARN = "apply", "continue", "fail", "warn"


def chosen(model: Mapping[str, Any]) -> str:
    """The model's on_configuration_change, or `warn` if it is not set: dbt's default `apply` is in every config."""
    is_set = SETTING in (model.get("unrendered_config") or {})
    return str(model["config"].get(SETTING) or WARN) if is_set else WARN


def refusal(topic: str, drifts: Iterable[Drift], choice: str) -> str | None:
    """Why the run is refused; None if it is not."""
    refused = [drift for drift in drifts if choice == FAIL or (choice == APPLY and drift.problem)]
    if not refused:
        return None
    reasons = "; ".join(f"{drift}" + (f" ({drift.problem})" if drift.problem and choice == APPLY else "") for drift in refused)
    remedy = (
        "Change the model or the topic, or set on_configuration_change to apply or continue."
        if choice == FAIL
        else "Only changes that are known to lose no data are applied. Change the model, alter the topic yourself, or set "
        "on_configuration_change='continue'."
    )
    return f"topic '{topic}' differs from the model and on_configuration_change='{choice}': {reasons}. {remedy}"


def warnings(topic: Topic, settings: TopicSettings, choice: str) -> list[str]:
    """One warning for each difference, if the user has not decided what to do about them."""
    if choice != WARN:
        return []
    others = [drift for drift in topic_drift.drift(topic, settings) if drift.setting not in (PARTITIONS, CLEANUP)]
    return topics.differences(topic, settings) + [
        f"topic '{topic.name}': {drift}. The topic is not altered; on_configuration_change decides what a run does about it."
        for drift in others
    ]


def adds_partitions(drifts: Iterable[Drift], choice: str) -> bool:
    """Whether `applied` gives the topic more partitions, so that Kafka's default partitioner places keys elsewhere."""
    return choice == APPLY and any(drift.setting == PARTITIONS for drift in drifts)


def applied(admin: KafkaAdminClient, topic: Topic, drifts: tuple[Drift, ...], choice: str) -> Topic:
    """The topic after it was altered as the model asks for.

    Raises:
        TopicMovedError: somebody wrote to the topic at the same time.
    """
    if choice != APPLY or not drifts:
        return topic
    topic_drift.apply(admin, topic, drifts)
    if not adds_partitions(drifts, choice):
        return topic
    written = topics.ends(admin, topic.name, topic.written, READ_UNCOMMITTED) if topic.written else {}
    altered = topics.describe(admin, topic.name)
    if altered is None or altered.id != topic.id or any(altered.end[p] != end for p, end in topic.end.items()):
        raise TopicMovedError(topic.name, "was written to while it got partitions")
    return replace(altered, written={**dict.fromkeys(altered.end, 0), **written} if topic.written else {})


def check(model: str, topic: str, drifts: Iterable[Drift], choice: str) -> None:
    """Refuse the run, before anything is written.

    Raises:
        GuardError: with all differences.
    """
    if reason := refusal(topic, drifts, choice):
        raise GuardError(f"model {model}: {reason}\nNothing was written; the topic is untouched.")
