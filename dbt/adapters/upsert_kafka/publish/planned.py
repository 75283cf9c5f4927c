"""The checks of a run that applies a plan: it writes what the plan shows, or nothing.

Each check comes as early as its facts are known, and `check` once more directly before the write. Without a plan they do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka import KafkaAdminClient

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.publish.fingerprint import Fingerprint, of_topic
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.state.store import store_of


class PlanChangedError(GuardError):
    """The run would not write what its plan shows; the topic is unchanged."""


def check_topic(admin: KafkaAdminClient, request: Request) -> None:
    """Check that the topic is as it was planned, before an exactly-once run aborts the transaction of a killed one."""
    if request.planned is not None:
        cluster = store_of(request.kafka, request.state).cluster_id(admin)
        now = of_topic(cluster, topics.describe(admin, request.topic), request)
        check(request, request.planned.topic_causes(now))


def check_causes(request: Request, now: Fingerprint) -> None:
    """Check what is known before the SELECT is computed: options, SELECT, columns and topic."""
    if request.planned is not None:
        check(request, request.planned.causes(now))


def check_all(request: Request, now: Fingerprint) -> None:
    """Check everything, messages included."""
    if request.planned is not None:
        check(request, request.planned.differences(now))


def check(request: Request, differences: Sequence[str]) -> None:
    """Refuse a run that differs from its plan.

    Raises:
        PlanChangedError: with what changed.
    """
    if request.planned is not None and differences:
        raise PlanChangedError(changed(request.model, differences))


def changed(model: str, differences: Sequence[str]) -> str:
    """The message about a model that is not as it was planned."""
    reasons = "; ".join(reason.rstrip(".") for reason in differences)
    return f"model {model}: is not as it was planned: {reasons}. Nothing was written. Run upsert-kafka plan again."
