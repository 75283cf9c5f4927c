"""Warnings as dbt's own: `--warn-error` and `--warn-error-options` apply to them, under the name `AdapterEventWarning`.

`warn` comes before anything is written, so that a warning that is an error leaves the topic as it was. What is found out after
the write is reported with `warn_after_write`, which is never an error: the topic has changed, and the run has succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable

from dbt.adapters.events.types import AdapterEventWarning
from dbt_common.events.base_types import EventLevel
from dbt_common.events.contextvars import get_node_info
from dbt_common.events.functions import fire_event, warn_or_error
from dbt_common.exceptions import EventCompilationError

from dbt.adapters.upsert_kafka.errors import WarningError


def warn(*warnings: str) -> None:
    """Give warnings before anything is written.

    Raises:
        WarningError: the flags of dbt make these warnings errors; the message has all of them.
    """
    errors = []
    for warning in warnings:
        try:
            warn_or_error(_event(warning))
        except EventCompilationError:
            errors.append(warning)
    if errors:
        raise WarningError("\n".join([*errors, "This warning is an error (--warn-error). Nothing was written."]))


def warn_about(model: str, warnings: Iterable[str]) -> None:
    """Give warnings about a model before anything is written; see `warn`."""
    warn(*(f"model {model}: {warning}" for warning in warnings))


def warn_after_write(warning: str) -> None:
    """Report what was found out after the write. Flags of dbt can't make it an error."""
    try:
        fire_event(_event(warning))
    except EventCompilationError:
        fire_event(_event(warning), level=EventLevel.ERROR)


def _event(text: str) -> AdapterEventWarning:
    return AdapterEventWarning(name="upsert_kafka", base_msg=text, args=[], node_info=get_node_info())
