"""Hides the columns of plan_mask in decoded messages.

A field is hidden by its name, wherever it is. What is not known to be harmless is hidden too: text without fields, messages with
another layout than the one that decoded them, and fields that the SELECT does not have, because a masked column may have had
another name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dbt.adapters.upsert_kafka.formats import Format, Side
from dbt.adapters.upsert_kafka.formats.changelog import ChangelogFormat
from dbt.adapters.upsert_kafka.formats.records import MASKED, Records

TEXT = ("csv", "raw")
"""Formats whose messages have no names of fields."""
WITHOUT_NAMES = (*TEXT, "avro")
"""Formats whose messages are decoded wrongly, instead of not at all, if they were written with other columns."""


@dataclass(frozen=True)
class Mask:
    """What is hidden in the samples of one model."""

    new: Records
    """Of the messages of this run."""
    old: Records
    """Of the messages that the topic has."""
    knows_old: bool = True
    """Whether the layout of every old value is known."""

    def key(self, key: Any, is_row: bool) -> Any:
        """A key to show.

        Args:
            is_row: whether a row of the SELECT has the key; otherwise only the topic has it.
        """
        if not self.new.mask or key is None:
            return key
        if not is_row and not self.new.knows_keys:
            return MASKED
        return self._of_run(key, self.new.key_format, self.new.key)

    def value(self, value: Any) -> Any:
        """A value that this run sends, to show."""
        return self._of_run(value, self.new.value_format, self.new.value) if self.new.mask else value

    def old_value(self, value: Any) -> Any:
        """A value of the topic, to show."""
        if not self.new.mask or value is None:
            return value
        if not isinstance(value, dict) or (not self.knows_old and self.old.value_format.name in WITHOUT_NAMES):
            return MASKED
        return self._known(value, is_row=not isinstance(self.old.value_format, ChangelogFormat))

    def _of_run(self, value: Any, form: Format, side: Side) -> Any:
        if isinstance(value, dict):
            return self._without(value)
        return value if value is None or (form.name in TEXT and not self.new.masks(side)) else MASKED

    @property
    def _hidden(self) -> frozenset[str]:
        sides = (self.new.key, self.new.value, self.old.key, self.old.value)
        masked = {field.name.lower() for side in sides for field in side.fields if field.column.lower() in self.new.mask}
        return self.new.mask | masked

    def _without(self, value: Any) -> Any:
        if isinstance(value, dict):
            hidden = self._hidden
            return {k: MASKED if str(k).lower() in hidden else self._without(v) for k, v in value.items()}
        return [self._without(v) for v in value] if isinstance(value, list) else value

    def _known(self, value: Any, is_row: bool) -> Any:
        """The value without hidden fields, and without those that the SELECT does not have. An event of a CDC format has rows in
        its fields."""
        if isinstance(value, list):
            return [self._known(v, is_row) for v in value]
        if not isinstance(value, dict):
            return value
        if not is_row:
            return {k: self._known(v, is_row=True) for k, v in value.items()}
        names = {name.lower() for f in (*self.new.value.fields, *self.new.key.fields) for name in (f.name, f.column)}
        return self._without({k: v if str(k).lower() in names else MASKED for k, v in value.items()})
