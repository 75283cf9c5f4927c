"""How `upsert-kafka stream` gets its models from dbt: the run of a continuous model prepares it and hands it over, unstarted.

dbt compiles the models, runs hooks and creates the views, as in every run. The package `continuous` starts the streams later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dbt.adapters.upsert_kafka.dbt_warnings import warn
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.publish import memory
from dbt.adapters.upsert_kafka.publish.request import Request
from dbt.adapters.upsert_kafka.state import lease
from dbt.adapters.upsert_kafka.streaming.pipeline import StreamModel

POLL_SECONDS = 0.5
_lock = threading.Lock()
_taken: list[StreamModel] | None = None


@contextmanager
def taking() -> Iterator[list[StreamModel]]:
    """Take over the continuous models of the dbt commands that run in the block."""
    global _taken
    _taken = []
    try:
        yield _taken
    finally:
        _taken = None


def is_active() -> bool:
    """Whether continuous models are taken over."""
    return _taken is not None


def give(model: StreamModel) -> None:
    """Hand over a model that was prepared."""
    with _lock:
        assert _taken is not None
        _taken.append(model)


def wait_for_lease(request: Request, is_cancelled: Callable[[], bool]) -> None:
    """Wait until the lease of another process ends, as long as that process does not renew it: it may have been killed.

    Raises:
        GuardError: the other process runs.
    """
    until: float | None = None
    with request.kafka.admin() as admin:
        while not is_cancelled() and (topic := topics.describe(admin, request.topic)) is not None:
            stream = memory.look(admin, topic, request).stream
            found = lease.holder(stream)
            if found is None:
                return
            if until is None:
                until = found.until
                warn(f"model {request.model}: waits for the lease of {found}, which ends at most in {lease.SECONDS:.0f} s")
            elif found.until > until:
                lease.check(request.model, request.topic, stream)
            time.sleep(POLL_SECONDS)
