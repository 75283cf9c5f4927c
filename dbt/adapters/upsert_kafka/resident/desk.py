"""Which child may use, start or replace the JVM that the children share. One JVM at a time, for one fingerprint of settings.

Each function returns the answers that the resident sends, also to children that have waited. A child whose settings differ
replaces the JVM if no other child uses it, and otherwise starts a Spark of its own, as plain dbt does. The JVM runs as long as
the pipe that is its stdin is open; only the resident has it.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from dataclasses import dataclass

from dbt.adapters.upsert_kafka.resident.protocol import Message

Fingerprint = Mapping[str, str]
"""A hash of the value of each setting, by its name."""
Answers = list[tuple[int, Message]]
"""Messages, each with the process id of the child that it is for."""

SHOWN_NAMES = 3
ENDED = "Spark's JVM has ended: it is started again"
UNUSABLE = "The resident's Spark does not answer, and another command uses it: this one starts its own"


@dataclass(frozen=True)
class Jvm:
    """A JVM with Py4J's gateway. The secret lets its owner run any code in it."""

    port: int
    secret: str
    process: int
    fingerprint: Fingerprint
    pipe: int
    """Its stdin."""

    @property
    def is_alive(self) -> bool:
        poll = select.poll()
        poll.register(self.pipe, 0)
        return not poll.poll(0)

    def end(self) -> None:
        os.close(self.pipe)


class Desk:
    """The state of the shared JVM."""

    def __init__(self) -> None:
        self.jvm: Jvm | None = None
        self._users: set[int] = set()
        self._starting: tuple[int, Fingerprint] | None = None
        self._waiting: dict[int, Fingerprint] = {}

    def ask(self, child: int, fingerprint: Fingerprint) -> Answers:
        """A child needs Spark."""
        if self._starting is not None:
            if not (changed := differences(self._starting[1], fingerprint)):
                self._waiting[child] = fingerprint
                return []
            return [(child, _own(changed))]
        if self.jvm is None:
            return self._start(child, fingerprint, None)
        if not self.jvm.is_alive:
            self._end()
            return self._start(child, fingerprint, ENDED)
        if changed := differences(self.jvm.fingerprint, fingerprint):
            if self._users - {child}:
                return [(child, _own(changed))]
            self._end()
            return self._start(child, fingerprint, f"Spark is started again, because {_names(changed)} changed")
        self._users.add(child)
        return [(child, {"answer": "attach", "port": self.jvm.port, "secret": self.jvm.secret})]

    def started(self, child: int, jvm: Jvm) -> Answers:
        """The child has started the JVM."""
        self.jvm, self._starting = jvm, None
        waiting, self._waiting = self._waiting, {}
        return [answer for each in (child, *waiting) for answer in self.ask(each, waiting.get(each, jvm.fingerprint))]

    def unreachable(self, child: int, port: int, fingerprint: Fingerprint) -> Answers:
        """The child could not use the JVM at this port."""
        if self.jvm is None or self.jvm.port != port:
            return self.ask(child, fingerprint)
        self._users.discard(child)
        if self.jvm.is_alive and self._users:
            return [(child, {"answer": "own", "reason": UNUSABLE})]
        self._end()
        return self._start(child, fingerprint, ENDED)

    def distrust(self, child: int) -> None:
        """The JVM did not end what the child had started: nobody else may begin to use it."""
        if self.jvm is not None and not self._users - {child}:
            self._end()

    def left(self, child: int) -> Answers:
        """The child has ended, or does not use the JVM any more."""
        self._users.discard(child)
        self._waiting.pop(child, None)
        if self._starting is None or self._starting[0] != child:
            return []
        self._starting = None
        waiting, self._waiting = self._waiting, {}
        return [answer for each, fingerprint in waiting.items() for answer in self.ask(each, fingerprint)]

    def close(self) -> None:
        if self.jvm is not None:
            self._end()

    def _start(self, child: int, fingerprint: Fingerprint, reason: str | None) -> Answers:
        self._starting = child, fingerprint
        return [(child, {"answer": "start", "reason": reason})]

    def _end(self) -> None:
        assert self.jvm is not None
        self.jvm.end()
        self.jvm, self._users = None, set()


def differences(before: Fingerprint, now: Fingerprint) -> list[str]:
    """The names of settings that differ."""
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def _own(changed: list[str]) -> Message:
    reason = f"Another command uses the resident's Spark with other settings ({_names(changed)}): this one starts its own"
    return {"answer": "own", "reason": reason}


def _names(changed: list[str]) -> str:
    """
    >>> _names(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    more = len(changed) - SHOWN_NAMES
    return ", ".join(changed[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
