"""The contract of CDC formats, whose messages are changes of rows: `debezium-json` and `canal-json`.

Messages are decoded to changes with Flink's row kinds (`+I`, `-U`, `+U`, `-D`). Rows are encoded to the events that Flink writes:
an update is a delete of the old row followed by an insert of the new row.
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
    """One CDC format. The rows in its messages are JSON and use the options of `json`."""

    missing_image: str
    """What to do if a message has no before image. Part of an error message."""

    def problems(self, side: Side) -> list[str]:
        return unsupported(self.name, side, refusal)

    @abstractmethod
    def changes(self, side: Side, payload: str, images: bool) -> str:
        """SQL expression that decodes `payload` to ARRAY<STRUCT<row_kind STRING, row STRUCT<…>>>; NULL if it can't be decoded.

        Args:
            images: whether an update needs a before image. If not, an update without one gives `+U` only.
        """

    @abstractmethod
    def event(self, side: Side, row: str, deleted: bool) -> str:
        """SQL expression that encodes the insert or delete of a row.

        Args:
            row: a STRUCT expression.
            deleted: whether the row is deleted.
        """

    def encode(self, side: Side) -> str:
        members = (f"{quote_literal(f.name)}, {quote_identifier(f.column)}" for f in side.fields)
        return self.event(side, f"named_struct({', '.join(members)})", deleted=False)

    def decode(self, side: Side, payload: str) -> str:
        """The row of the last change in the message; NULL if that is a delete."""
        return self._last(side, payload, f"CASE WHEN c.{ROW_KIND} IN {LIVE} THEN c.{ROW} END")

    def live(self, side: Side, payload: str) -> str:
        """The payload, or NULL if its last change is a delete. NULL corresponds to a tombstone of an upsert topic."""
        return self._last(side, payload, f"CASE WHEN c.{ROW_KIND} IN {LIVE} THEN {payload} END")

    def retraction(self, side: Side, payload: str) -> str:
        """SQL expression that encodes the delete of the row in `payload`."""
        return let("w", self.decode(side, payload), self.event(side, "w", True))

    def _last(self, side: Side, payload: str, body: str) -> str:
        found = self.changes(side, payload, images=False)
        if side.options.get("on_decode_error") != "skip":
            message = f"Topic {side.topic}: the value is not {self.name} with the columns of this model: "
            found = f"coalesce({found}, raise_error(concat({quote_literal(message)}, left(CAST({payload} AS STRING), 200))))"
        found = f"try_element_at({found}, -1)"
        return f"CASE WHEN octet_length({payload}) > 0 THEN {let('c', found, body)} END"


def row_type(side: Side) -> StructType:
    """The type of a row in a message."""
    return StructType([StructField(f.name, f.type) for f in side.fields])


def change(kind: str, row: str) -> str:
    """SQL expression of one change."""
    return f"named_struct('{ROW_KIND}', '{kind}', '{ROW}', {row})"
