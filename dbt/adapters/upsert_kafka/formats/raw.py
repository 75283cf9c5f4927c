"""Format `raw`: the bytes of a single BINARY or STRING column. Strings are UTF-8."""

from __future__ import annotations

from pyspark.sql.types import BinaryType, DataType, StringType

from dbt.adapters.upsert_kafka.formats import Format, Side, unsupported
from dbt.adapters.upsert_kafka.sql import quote_identifier, quote_literal


class Raw(Format):
    name = "raw"

    def problems(self, side: Side) -> list[str]:
        if len(side.fields) > 1:
            names = ", ".join(f.column for f in side.fields)
            return [
                f"the {side.role} has the columns {names}, but raw supports a single column; use another format or remove columns"
            ]
        return unsupported(self.name, side, _refusal)

    def encode(self, side: Side) -> str:
        return f"CAST({quote_identifier(side.fields[0].column)} AS BINARY)"

    def decode(self, side: Side, payload: str) -> str:
        [field] = side.fields
        value = f"CAST({payload} AS STRING)" if isinstance(field.type, StringType) else payload
        return f"CASE WHEN {payload} IS NOT NULL THEN named_struct({quote_literal(field.column)}, {value}) END"


def _refusal(data_type: DataType) -> str | None:
    if not isinstance(data_type, (StringType, BinaryType)):
        return "raw supports STRING and BINARY; cast the column in the SELECT"
    return None
