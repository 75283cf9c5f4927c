"""Keeps the streams of a project running: one loop that starts, watches and ends them, and a thread for their lag."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from dbt.adapters.events.logging import AdapterLogger
from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from py4j.protocol import Py4JNetworkError

from dbt.adapters.upsert_kafka.continuous.lag import Lag
from dbt.adapters.upsert_kafka.continuous.report import Line, Reporter
from dbt.adapters.upsert_kafka.continuous.running import RunningStream, Status
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.kafka_client import topics
from dbt.adapters.upsert_kafka.kafka_client.clients import KafkaSettings
from dbt.adapters.upsert_kafka.streaming import sources

logger = AdapterLogger("upsert_kafka")

POLL_SECONDS = 0.25
LOOK_SECONDS = 1.0
STALLED_SECONDS = 120.0
"""Without a report of Spark for this long, or ten intervals, a stream is not healthy. Spark reports every 10 s without events."""


class Clients:
    """Admin clients of one thread, one for each cluster, opened on first use."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._admins: dict[str, KafkaAdminClient] = {}

    def of(self, kafka: KafkaSettings) -> KafkaAdminClient:
        if kafka.bootstrap_servers not in self._admins:
            self._admins[kafka.bootstrap_servers] = self._stack.enter_context(kafka.admin())
        return self._admins[kafka.bootstrap_servers]

    def close(self) -> None:
        """Close all; the next `of` opens a new one."""
        self._admins.clear()
        self._stack.close()


class Supervisor:
    """Runs streams until `is_ending`.

    Args:
        is_ending: whether Ctrl-C or SIGTERM came.
        end_seconds: for which running batches may finish afterwards.
    """

    def __init__(self, streams: Sequence[RunningStream], is_ending: Callable[[], bool], end_seconds: float) -> None:
        self.streams = streams
        self._is_ending = is_ending
        self._end_seconds = end_seconds
        self._lags = {stream.name: Lag() for stream in streams}
        self._rates = {stream.name: (0, time.monotonic(), 0.0) for stream in streams}
        self._over = threading.Event()

    def run(self, reporter: Reporter) -> list[str]:
        """Run until the end, or until no stream is left.

        Returns:
            Why streams failed. Empty if the end was asked for.
        """
        keeper = threading.Thread(target=self._watch, daemon=True)
        keeper.start()
        reported: dict[str, int] = {}
        try:
            while not self._is_ending() and len(self._failures()) < len(self.streams):
                for stream in self.streams:
                    has_failed = stream.status is Status.FAILED
                    stream.check()
                    if stream.status is Status.FAILED and not has_failed and len(self._failures()) < len(self.streams):
                        reporter.message(f"{stream.reason} This stream has ended, the others go on.")
                    if stream.status is Status.PAUSING and reported.get(stream.name) != stream.restarts:
                        reported[stream.name] = stream.restarts
                        pause = max(0.0, stream.starts_at - time.monotonic())
                        reporter.message(f"{stream.reason} It starts again in {pause:.0f} s.")
                if reporter.is_due:
                    reporter.show(self.lines(rates=True))
                time.sleep(POLL_SECONDS)
            self._end()
        except (Py4JNetworkError, ConnectionError) as error:
            logger.debug(f"Spark has ended: {error!r}")
            return ["Spark has ended. Start the command again; its streams continue"]
        finally:
            self._over.set()
            keeper.join(timeout=self._end_seconds)
            self._close()
        reporter.show(self.lines(rates=True))
        return self._failures()

    def _failures(self) -> list[str]:
        return [str(stream.reason) for stream in self.streams if stream.status is Status.FAILED]

    def _end(self) -> None:
        for stream in self.streams:
            stream.ask_to_end()
        until = time.monotonic() + self._end_seconds
        while time.monotonic() < until:
            running = [stream for stream in self.streams if not stream.has_ended()]
            if not running:
                return
            time.sleep(0.05)

    def _close(self) -> None:
        for stream in self.streams:
            stream.close()

    def lines(self, rates: bool = False) -> list[Line]:
        """The streams as they are now.

        Args:
            rates: whether to compute the rates since the last call with this argument.
        """
        return [self._line(stream, rates) for stream in self.streams]

    def _line(self, stream: RunningStream, rates: bool) -> Line:
        counts, lag, progress = stream.counts, self._lags[stream.name], stream.progress
        events, at, rate = self._rates[stream.name]
        now = time.monotonic()
        if rates and now - at >= 1.0:
            rate = round((progress.events - events) / (now - at), 1)
            self._rates[stream.name] = (progress.events, now, rate)
        return Line(
            model=stream.name,
            topic=stream.model.request.topic,
            status=stream.status.value,
            batch=progress.batch,
            events=progress.events,
            events_per_second=rate,
            batch_seconds=progress.batch_seconds,
            lag_records=lag.records,
            lag_seconds=lag.seconds,
            written=counts.written,
            deleted=counts.deleted,
            repeated=counts.repeated,
            restarts=stream.restarts,
            error=stream.reason,
        )

    def problems(self) -> dict[str, str]:
        """Why streams are not healthy, by model."""
        found = {}
        for stream in self.streams:
            silent = time.monotonic() - stream.progress.at
            if stream.status is not Status.RUNNING:
                found[stream.name] = f"{stream.status.value}: {stream.reason}" if stream.error else stream.status.value
            elif silent > max(STALLED_SECONDS, 10 * stream.interval.total_seconds()):
                found[stream.name] = f"Spark has reported nothing for {silent:.0f} s"
        return found

    def _watch(self) -> None:
        """Look at the lag, until the end."""
        clients = Clients()
        while not self._over.wait(LOOK_SECONDS):
            for stream in self.streams:
                try:
                    self._look(stream, clients)
                except (KafkaError, UpsertKafkaError, OSError) as error:
                    logger.debug(f"model {stream.name}: lag: {error!r}")
                    clients.close()
        clients.close()

    def _look(self, stream: RunningStream, clients: Clients) -> None:
        writer = stream.writer
        if writer is None or stream.status is not Status.RUNNING:
            return
        published, ends = writer.stream.offsets, {}
        for source in stream.model.sources:
            for topic, partitions in sources.of_source(source, published).items():
                ends[topic] = topics.ends(clients.of(source.kafka), topic, partitions)
        self._lags[stream.name].add(ends, published, time.time())
