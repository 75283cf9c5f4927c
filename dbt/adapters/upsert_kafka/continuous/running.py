"""One continuous stream: starts its query, starts it again after failures with growing pauses, and ends it between two batches.

Leaves to `supervisor` when it is asked for, and to `streaming` what the query does.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum
from typing import Any

from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from py4j.protocol import Py4JError

from dbt.adapters.upsert_kafka.errors import GuardError, OptionsError, UpsertKafkaError, WarningError, kafka_error_text
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS
from dbt.adapters.upsert_kafka.spark.internals import progress_reports
from dbt.adapters.upsert_kafka.state.keeper import LEASES
from dbt.adapters.upsert_kafka.streaming import pipeline
from dbt.adapters.upsert_kafka.streaming.batches import Batches, StreamEndedError
from dbt.adapters.upsert_kafka.streaming.pipeline import StreamModel
from dbt.adapters.upsert_kafka.streaming.rows import Counts

logger = AdapterLogger("upsert_kafka")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
DEFAULT_INTERVAL = timedelta(seconds=1)
REFUSED = (GuardError, OptionsError, WarningError)
"""The same start or batch would be refused again."""


class Status(Enum):
    """What a stream does."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    """It failed and starts again after a pause."""
    FAILED = "failed"
    """It does not start again."""
    ENDED = "ended"


@dataclass
class Progress:
    """What Spark has reported about the batches of a stream."""

    events: int = 0
    batch: int = -1
    batch_seconds: float = 0.0
    at: float = 0.0
    """When the last report came, of the clock `time.monotonic`."""


class RunningStream:
    """A continuous model.

    Args:
        max_restarts: after so many failures without a batch in between, the stream does not start again.
    """

    def __init__(self, model: StreamModel, max_restarts: int) -> None:
        self.model = model
        self.status = Status.STARTING
        self.restarts = 0
        self.error: Exception | None = None
        """Of the last failure."""
        self.progress = Progress(at=time.monotonic())
        self.starts_at = time.monotonic()
        """When it is to be started, of the clock `time.monotonic`."""
        self.writer: Batches | None = None
        self._max_restarts = max_restarts
        self._failures = 0
        self._query: Any = None
        self._open = ExitStack()
        self._before = Counts()
        self._reported = ""
        """When the trigger began whose report was seen last."""

    @property
    def name(self) -> str:
        return self.model.request.model

    @property
    def reason(self) -> str | None:
        """The last failure in words."""
        return None if self.error is None else str(getattr(self.error, "msg", self.error)).strip()

    @property
    def interval(self) -> timedelta:
        given = self.model.request.options.trigger_interval
        return DEFAULT_INTERVAL if given is None else given

    @property
    def counts(self) -> Counts:
        """Of all starts."""
        return _sum(self._before, self.writer.counts) if self.writer else self._before

    def check(self) -> None:
        """Start the stream if its time has come, notice progress and failures. Called often."""
        if self.status in (Status.STARTING, Status.PAUSING) and time.monotonic() >= self.starts_at:
            self._start()
        elif self.status is Status.RUNNING:
            self._notice_progress()
            if not self._query.isActive:
                self._failed(self._failure())

    def _start(self) -> None:
        self._open.close()
        if self.writer is not None:
            self._before, self.writer = self.counts, None
        try:
            admin: KafkaAdminClient = self._open.enter_context(self.model.request.kafka.admin())
            analysed, layout = pipeline.analyse(self.model)
            self.writer = pipeline.begin(self.model, analysed, layout, admin)
            self._open.callback(self.writer.close)
            trigger = f"{int(self.interval.total_seconds() * 1000)} milliseconds"
            self._query = pipeline.start_query(self.model, self.writer, processingTime=trigger)
        except UpsertKafkaError as error:
            self._failed(error)
        except KafkaError as error:
            self._failed(UpsertKafkaError(f"model {self.name}: Kafka answered with an error: {kafka_error_text(error)}"))
        except SPARK_ERRORS as error:
            self._failed(UpsertKafkaError(f"model {self.name}: Spark did not start the stream: {_first_line(error)}"))
        else:
            self.status = Status.RUNNING
            self.progress = Progress(self.progress.events, -1, 0.0, time.monotonic())

    def _failure(self) -> Exception:
        assert self.writer is not None
        error = self._query.exception()
        return pipeline.failure(self.model, self.writer, error or UpsertKafkaError("the query was stopped"))

    def _failed(self, error: Exception) -> None:
        self.error = error
        self._failures += 1
        if isinstance(error, REFUSED) or self._failures > self._max_restarts:
            self.status = Status.FAILED
            # Its lease is released: others may repair the topic while the other streams go on.
            self.close()
            return
        pause = min(FIRST_PAUSE * 2 ** (self._failures - 1), LONGEST_PAUSE)
        self.status, self.starts_at = Status.PAUSING, time.monotonic() + pause
        self.restarts += 1
        logger.debug(f"model {self.name}: starts again in {pause:.0f} s: {error}")

    def _notice_progress(self) -> None:
        reports = progress_reports(self._query, self._reported)
        if not reports or self.writer is None:
            return
        self._reported, self.progress.at = str(reports[-1]["timestamp"]), time.monotonic()
        for report in reports:
            number, rows = int(report["batchId"]), int(report["numInputRows"])
            if number > self.progress.batch and rows:
                self.progress.events += rows
                self.progress.batch = number
                self.progress.batch_seconds = report["durationMs"].get("triggerExecution", 0) / 1000
                self._failures, self.error = 0, None

    def ask_to_end(self) -> None:
        """Let the running batch finish, and begin no other."""
        if self.writer is not None:
            self.writer.is_ending = True

    def has_ended(self) -> bool:
        """Whether the stream has ended after `ask_to_end`. It is stopped if it waits for its next batch."""
        if self.status is not Status.RUNNING:
            return True
        if not self._query.isActive:
            failure = self.writer.error if self.writer else None
            if failure is not None and not isinstance(failure, StreamEndedError):
                self.error = failure
            self._notice_progress()
            self.status = Status.ENDED
        elif not self._query.status["isTriggerActive"]:
            self._query.stop()
        return self.status is not Status.RUNNING

    def close(self) -> None:
        """Stop the query if it runs, and release the lease."""
        try:
            if self._query is not None and self._query.isActive:
                self._query.stop()
        except (*SPARK_ERRORS, Py4JError, OSError) as error:
            logger.debug(f"model {self.name}: the query was not stopped: {error!r}")
        try:
            LEASES.release(self.model.request.kafka, self.model.request.topic)
        except (KafkaError, UpsertKafkaError) as error:
            logger.debug(f"model {self.name}: the lease was not released: {error!r}")
        self._open.close()


def _sum(first: Counts, second: Counts) -> Counts:
    return Counts(*(getattr(first, field.name) + getattr(second, field.name) for field in fields(Counts)))


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]
