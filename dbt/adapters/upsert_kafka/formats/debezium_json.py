"""Format `debezium-json`: `{"before": …, "after": …, "op": "c"}`, as Debezium writes it and Flink reads and writes it.

Decodes inserts (c), snapshot reads (r), updates (u) and deletes (d). With `schema_include` they are in the `payload` of Kafka
Connect's envelope. Rows are encoded as c and d without `source` and `ts_ms`, as in Flink.
"""

from __future__ import annotations

from pyspark.sql.types import StringType, StructField, StructType

from dbt.adapters.upsert_kafka.formats import Field, Side
from dbt.adapters.upsert_kafka.formats.changelog import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    ChangelogFormat,
    change,
    row_type,
)
from dbt.adapters.upsert_kafka.formats.json import Json, object_bytes
from dbt.adapters.upsert_kafka.sql import let, type_text


class DebeziumJson(ChangelogFormat):
    name = "debezium-json"
    missing_image = (
        "an update or delete needs a before image; on Postgres set REPLICA IDENTITY FULL, "
        "or set unique_key to read the current table, for which updates need no before image"
    )

    def changes(self, side: Side, payload: str, images: bool) -> str:
        row = row_type(side)
        envelope = StructType([StructField("before", row), StructField("after", row), StructField("op", StringType())])
        include = bool(side.options.get("schema_include", False))
        members = [StructField("payload", envelope)] if include else envelope.fields
        fields = tuple(Field(f.name, f.name, f.dataType) for f in members)
        parsed = Json().decode(Side(side.role, side.topic, fields, {**side.options, "on_decode_error": "skip"}), payload)
        inserted = f"array({change(INSERT, 'e.after')})"
        updated = f"array({change(UPDATE_BEFORE, 'e.before')}, {change(UPDATE_AFTER, 'e.after')})"
        cases = f"WHEN e.op IN ('c', 'r') AND e.after IS NOT NULL THEN {inserted}"
        cases += f" WHEN e.op = 'u' AND e.after IS NOT NULL AND e.before IS NOT NULL THEN {updated}"
        if not images:
            cases += f" WHEN e.op = 'u' AND e.after IS NOT NULL THEN array({change(UPDATE_AFTER, 'e.after')})"
        cases += f" WHEN e.op = 'd' AND e.before IS NOT NULL THEN array({change(DELETE, 'e.before')})"
        return let("e", f"{parsed}.payload" if include else parsed, f"CASE {cases} END")

    def event(self, side: Side, row: str, deleted: bool) -> str:
        struct = row_type(side)
        none = f"CAST(NULL AS {type_text(struct)})"
        before, after, op = (row, none, "'d'") if deleted else (none, row, "'c'")
        return object_bytes(side, [("before", before, struct), ("after", after, struct), ("op", op, StringType())])
