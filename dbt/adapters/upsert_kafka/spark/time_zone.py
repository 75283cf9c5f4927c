"""The time zone of Python code in models. Spark has a session time zone; Python's `datetime` uses that of the process.

A Python model that creates rows from datetimes without a zone would publish other timestamps on a machine in another time zone.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from zoneinfo import available_timezones

SETTING = "spark.sql.session.timeZone"

_lock = threading.Lock()
_users = 0
_machine: str | None = None


def is_region(zone: str) -> bool:
    """Whether Python knows the zone by this name. Spark also takes offsets such as +02:00, which mean the opposite in TZ."""
    return zone in available_timezones()


def machine_zone() -> str | None:
    """The name of the machine's time zone; None if it is UTC."""
    if time.timezone == 0 and not time.daylight:
        return None
    return os.environ.get("TZ") or time.tzname[0]


@contextmanager
def as_process_zone(zone: str) -> Iterator[None]:
    """Make the session time zone that of this process while code of a model runs, in one or several threads."""
    global _users, _machine
    if not is_region(zone):
        yield
        return
    with _lock:
        _users += 1
        if _users == 1:
            _machine = os.environ.get("TZ")
            _set(zone)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _set(_machine)


def _set(zone: str | None) -> None:
    if zone is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = zone
    time.tzset()
