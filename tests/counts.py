"""The counts in the message of a run, which dbt prints in brackets."""

from __future__ import annotations

import re
from typing import Any

_KEYS = re.compile(r"topic \S+: (\d+) new, (\d+) changed, (\d+) deleted, (\d+) unchanged$")
_EVENTS = re.compile(r"topic \S+: (\d+) appended$")


def counts(message: Any) -> tuple[int, ...]:
    """New, changed, deleted and unchanged keys, or appended events, of a message or of a publication that has it."""
    found = _KEYS.search(str(message)) or _EVENTS.search(str(message))
    assert found is not None, f"no counts in {str(message)!r}"
    return tuple(int(count) for count in found.groups())
