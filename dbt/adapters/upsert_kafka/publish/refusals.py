"""Whether a check that refuses a run ends it: a run that publishes ends with the first refusal, a preview collects all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.publish.preview import NOTHING_WRITTEN


class Refusals:
    """The reasons to refuse a run.

    Args:
        model: its name, with which messages begin.
        collects: whether checks continue after a refusal.
    """

    def __init__(self, model: str, collects: bool) -> None:
        self._prefix, self._collects = f"model {model}: ", collects
        self.reasons: list[str] = []

    @contextmanager
    def check(self) -> Iterator[None]:
        """Run checks that raise GuardError."""
        try:
            yield
        except GuardError as error:
            if not self._collects:
                raise
            text = str(error.msg).replace(NOTHING_WRITTEN, "").replace("Nothing was written.", "")
            found = (" ".join(line.removeprefix(self._prefix).split()) for line in text.splitlines())
            self.reasons += [line for line in found if line]
