"""The contract of a format whose values are changes of rows instead of rows: `debezium-json` and `canal-json`.

Reading gives changes with Flink's row kinds (`+I -U +U -D`); writing gives the events that Flink writes, where an update is the
delete of the old row followed by the insert of the new one.
"""

from __future__ import annotations

from abc import abstractmethod

from pyspark.sql.types import StructField, StructType

from dbt.adapters.upsert_kafka.formats import Format, Side, unsupported
from dbt.adapters.upsert_kafka.formats.json import refusal
from dbt.adapters.upsert_kafka.sql import let, quote_identifier, quote_literal

ROW_KIND, ROW = "row_kind", "row"
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "+I", "-U", "+U", "-D"
LIVE = f"('{INSERT}', '{UPDATE_AFTER}')"


class ChangelogFormat(Format):
    """One format of changes; rows inside are JSON, with the options of `json`."""

    missing_image: str
    """What to do when a message lacks the row as it was before."""

    def problems(self, side: Side) -> list[str]:
        return unsupported(self.name, side, refusal)

    @abstractmethod
    def changes(self, side: Side, payload: str, images: bool) -> str:
        """SQL expression: ARRAY<STRUCT<row_kind STRING, row STRUCT<…>>>, in order; NULL for a payload that can't be read.

        Args:
            images: an update must have the row as it was before; without, one that has none is its `+U` alone.
        """

    @abstractmethod
    def event(self, side: Side, row: str, deleted: bool) -> str:
        """SQL expression for the bytes that say: this row (a STRUCT expression) is there now, or no longer."""

    def encode(self, side: Side) -> str:
        members = (f"{quote_literal(f.name)}, {quote_identifier(f.column)}" for f in side.fields)
        return self.event(side, f"named_struct({', '.join(members)})", deleted=False)

    def decode(self, side: Side, payload: str) -> str:
        """The row after the message's last change; NULL where that is a delete."""
        return self._last(side, payload, f"CASE WHEN c.{ROW_KIND} IN {LIVE} THEN c.{ROW} END")

    def live(self, side: Side, payload: str) -> str:
        """The payload, NULL where its last change is a delete: what a tombstone is in an upsert topic."""
        return self._last(side, payload, f"CASE WHEN c.{ROW_KIND} IN {LIVE} THEN {payload} END")

    def retraction(self, side: Side, payload: str) -> str:
        """The event that takes back the row which `payload` left."""
        return let("w", self.decode(side, payload), self.event(side, "w", True))

    def _last(self, side: Side, payload: str, body: str) -> str:
        found = self.changes(side, payload, images=False)
        if side.options.get("on_decode_error", "fail") == "fail":
            message = f"Topic {side.topic}: a value is not {self.name} with the columns of this model: "
            found = f"coalesce({found}, raise_error(concat({quote_literal(message)}, left(CAST({payload} AS STRING), 200))))"
        found = f"try_element_at({found}, -1)"
        return f"CASE WHEN octet_length({payload}) > 0 THEN {let('c', found, body)} END"


def row_type(side: Side) -> StructType:
    return StructType([StructField(f.name, f.type) for f in side.fields])


def change(kind: str, row: str) -> str:
    return f"named_struct('{ROW_KIND}', '{kind}', '{ROW}', {row})"
