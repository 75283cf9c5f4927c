"""How long encoding takes against Spark's own function on the same rows: `python -m benchmarks.encode [rows]`.

Prints, per format, the CPU time that Spark's task spent per row, ours divided by Spark's. The rounds are interleaved and medians
taken; CPU time and not the clock, so that a busy machine changes little. No broker is needed.
"""

from __future__ import annotations

import statistics
import sys

from pyspark.sql import DataFrame

from benchmarks.measured import run, session
from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.formats import Field, Side

ROUNDS, WARM_UP = 7, 3

# Columns may be null, as those of tables are.
ROWS = {
    "orders": {
        "name": "concat('customer ', id)",
        "email": "concat('user', id, '@example.com')",
        "amount": "CAST(id * 1.37 AS decimal(12,2))",
        "quantity": "CAST(id % 7 AS int)",
        "placed": "CAST(timestamp_millis(1700000000000 + id * 1001) AS timestamp_ntz)",
        "paid": "id % 2 = 0",
        "score": "id * 0.37D",
    },
    "texts": {f"t{i}": f"concat('text number {i} of row ', id)" for i in range(8)},
    "texts beyond ASCII": {f"t{i}": f"concat('文本 {i} ', id)" for i in range(8)},
    "numbers": {f"{kind[0]}{i}": f"CAST(id * {i}.5 AS {kind})" for i in range(1, 5) for kind in ("bigint", "double")},
}
LIMITS = {"json": 1.15, "csv": 1.5, "avro": 1.15}
PLAIN = {"json": "to_json({struct})", "csv": "to_csv({struct})", "avro": "to_avro({struct})"}


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    spark = session(cores=1)
    print(f"{count} rows, {ROUNDS} rounds; ns of CPU per row")
    for label, columns in ROWS.items():
        picked = ", ".join(f"if(id % 50 = 0, NULL, {expression}) AS {name}" for name, expression in columns.items())
        rows = spark.sql(f"SELECT id, {picked} FROM range(0, {count}, 1, 1)").cache()
        rows.count()
        for name in PLAIN:
            expressions = {"spark": plain(name, rows), "ours": ours(name, rows)}
            taken = {who: [] for who in expressions}
            for round_ in range(WARM_UP + ROUNDS):
                for who, expression in expressions.items():
                    nanoseconds = run(spark, rows.selectExpr(f"{expression} AS payload")).processor * 1e9 / count
                    if round_ >= WARM_UP:
                        taken[who].append(nanoseconds)
            spark_ns, our_ns = (statistics.median(taken[who]) for who in ("spark", "ours"))
            ratio = our_ns / spark_ns
            print(
                f"{label:20s} {name:5s} spark {spark_ns:6.0f}  ours {our_ns:6.0f}  ratio {ratio:.2f}  (goal {LIMITS[name]})",
                flush=True,
            )
        rows.unpersist()


def plain(name: str, rows: DataFrame) -> str:
    struct = "named_struct(" + ", ".join(f"'{c}', {c}" for c in rows.columns) + ")"
    expression = PLAIN[name].format(struct=struct)
    return expression if name == "avro" else f"CAST({expression} AS BINARY)"


def ours(name: str, rows: DataFrame) -> str:
    fields = tuple(Field(f.name, f.name, f.dataType, f.name != "id") for f in rows.schema.fields)
    return formats.get(name).encode(Side("value", "benchmark", fields))


if __name__ == "__main__":
    main()
