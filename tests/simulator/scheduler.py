"""Simulated time and processes. Processes are threads of which exactly one runs at a time, so that a seed decides everything."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from random import Random
from typing import Any

from kafka.future import Future


class KilledError(BaseException):
    """Raised inside a simulated process that was killed. Not an Exception: nothing may handle it."""


class Process:
    """A thread that runs only when the scheduler resumes it."""

    def __init__(self, scheduler: Scheduler, name: str, body: Callable[[], Any]) -> None:
        self.name = name
        self.is_killed = False
        self.done = Future()
        self.result: Any = None
        self.error: BaseException | None = None
        self._scheduler = scheduler
        self._body = body
        self._may_run = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._waits = 0
        self._thread.start()

    def kill(self) -> None:
        """End the process at its next step. What it has sent is still on its way."""
        if not self.done.is_done and not self.is_killed:
            self.is_killed = True
            self._scheduler.after(0, self.resume)

    def resume(self) -> None:
        """Let the process run until it waits again."""
        if self.done.is_done:
            return
        self._scheduler.running = self
        self._may_run.release()
        self._scheduler.main.acquire()
        self._scheduler.running = None

    def wait(self, seconds: float, future: Future | None = None) -> None:
        """Wait until the time is over or the future has a result. Called by the process itself."""
        if self.is_killed:
            raise KilledError
        if future is not None and future.is_done:
            return
        self._waits += 1
        waiting = self._waits

        def wake(_: object = None) -> None:
            if self._waits == waiting:
                self._waits += 1
                self.resume()

        if future is not None:
            future.add_both(lambda _: self._scheduler.after(0, wake))
        if seconds != float("inf"):
            self._scheduler.after(seconds, wake)
        self._scheduler.main.release()
        self._may_run.acquire()
        if self.is_killed:
            raise KilledError

    def _run(self) -> None:
        self._may_run.acquire()
        try:
            if not self.is_killed:
                self.result = self._body()
        except BaseException as error:
            self.error = error
        finally:
            self.done.success(None)
            self._scheduler.main.release()


class Scheduler:
    """The clock and the events that are due, in an order that the seed decides."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.time = 0.0
        self.main = threading.Semaphore(0)
        self.running: Process | None = None
        self.events = 0
        self._due: list[tuple[float, float, int, Callable[[], Any]]] = []

    def now(self) -> float:
        return self.time

    def after(self, seconds: float, action: Callable[[], Any]) -> None:
        self.events += 1
        # Events of the same moment happen in a random order.
        heapq.heappush(self._due, (self.time + seconds, self.random.random(), self.events, action))

    def start(self, name: str, body: Callable[[], Any]) -> Process:
        process = Process(self, name, body)
        self.after(0, process.resume)
        return process

    def sleep(self, seconds: float, future: Future | None = None) -> None:
        """Let the running process wait."""
        assert self.running is not None
        process = self.running
        process.wait(seconds, future)

    def run(self, until: float) -> None:
        """Let time pass until nothing is due, or until a moment."""
        while self._due and self._due[0][0] <= until:
            self.time, _, _, action = heapq.heappop(self._due)
            action()
