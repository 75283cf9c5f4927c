"""The command of this process: `upsert-kafka plan` or `apply`, or an ordinary dbt command.

dbt creates the adapter, so the adapter asks here what its run is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dbt.adapters.upsert_kafka.errors import GuardError

if TYPE_CHECKING:
    from dbt.adapters.upsert_kafka.publish.fingerprint import Fingerprint
    from dbt.adapters.upsert_kafka.publish.preview import Preview
    from dbt.adapters.upsert_kafka.publish.request import Request
    from dbt.adapters.upsert_kafka.source.source import Reading


@dataclass
class Command:
    """What the models of a command do, and what they found out."""

    publishes: bool
    """False for a plan, and for the check that comes before an apply."""
    samples: int = 0
    planned: Mapping[str, Fingerprint] = field(default_factory=dict)
    """By unique_id, for an apply."""
    previews: dict[str, Preview] = field(default_factory=dict)
    readings: dict[str, tuple[Reading, bool]] = field(default_factory=dict)
    """What sources would read, and whether their relations have something else now."""
    unpublished: set[str] = field(default_factory=set)
    """Unique ids of models whose relations do not exist."""
    missing: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Schema and name, in lower case, of the relation that a model did not find, by unique id."""

    def request(self, unique_id: str, request: Request) -> Request:
        """The request of a model, as this command needs it.

        Raises:
            GuardError: an apply would publish a model that is not in its plan.
        """
        planned = self.planned.get(unique_id)
        if request.existing is None:
            self.unpublished.add(unique_id)
        if self.publishes:
            if planned is None or request.mode != "publish":
                raise GuardError(f"model {request.model}: is not part of the plan. Nothing was written.")
            return replace(request, planned=planned)

        def report(found: Preview) -> None:
            self.previews[unique_id] = found

        return replace(request, mode="preview", planned=planned, samples=self.samples, report=report)


_current: Command | None = None


@contextmanager
def running(command: Command) -> Iterator[Command]:
    """Run dbt for a command."""
    global _current
    _current = command
    try:
        yield command
    finally:
        _current = None


def command() -> Command | None:
    """The command of this process; None for an ordinary dbt command."""
    return _current


def is_planning() -> bool:
    """Whether the models of this process are planned and nothing may be written."""
    return _current is not None and not _current.publishes


def adjusted(unique_id: str, request: Request) -> Request:
    """The request of a model, as the command of this process needs it."""
    return request if _current is None else _current.request(unique_id, request)


def miss(unique_id: str, schema: str, identifier: str) -> None:
    """Keep which relation a model did not find."""
    if _current is not None:
        _current.missing[unique_id] = schema.lower(), identifier.lower()


def read(unique_id: str, reading: Reading, is_new: bool) -> Reading:
    """Keep what a source would read."""
    if _current is not None:
        _current.readings[unique_id] = reading, is_new
    return reading
