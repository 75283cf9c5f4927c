"""How far a stream is behind its sources: the records that are not published yet, and how long the first has been there."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from dbt.adapters.upsert_kafka.state.record import SourceOffsets

HISTORY = 4096


class Lag:
    """The lag of one stream, from repeated looks at the end of its sources."""

    def __init__(self) -> None:
        self.records: int | None = None
        """None before the first look."""
        self.seconds: float | None = None
        self._ends: deque[tuple[float, SourceOffsets]] = deque(maxlen=HISTORY)

    def add(self, ends: SourceOffsets, published: SourceOffsets, now: float) -> None:
        """Compute the lag from the ends of the sources at a time.

        >>> lag = Lag()
        >>> lag.add({"views": {0: 5}}, {"views": {0: 5}}, 100.0)
        >>> lag.add({"views": {0: 9}}, {"views": {0: 5}}, 102.0)
        >>> lag.records, lag.seconds
        (4, 2.0)
        """
        self._ends.append((now, ends))
        self.records = _behind(ends, published)
        # What was there at an earlier look and is published by now is history.
        while len(self._ends) > 1 and _behind(self._ends[1][1], published) == 0:
            self._ends.popleft()
        self.seconds = 0.0 if self.records == 0 else round(now - self._ends[0][0], 1)


def _behind(ends: SourceOffsets, published: SourceOffsets) -> int:
    return sum(max(0, end - _of(published, topic).get(p, 0)) for topic, found in ends.items() for p, end in found.items())


def _of(offsets: SourceOffsets, topic: str) -> Mapping[int, int]:
    return offsets.get(topic, {})
