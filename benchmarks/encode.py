"""CPU time per row of encoding, compared with Spark's own function on the same rows."""

from __future__ import annotations

import argparse
from multiprocessing import get_context
from pathlib import Path

from pyspark.sql import DataFrame

from benchmarks.measured import Figure, figures, run, say, session
from dbt.adapters.upsert_kafka import formats
from dbt.adapters.upsert_kafka.formats import Field, Side

ROWS_AT_ONCE, WARM_UP, TURNS = 100_000, 4, 5
SPARK, OURS = "Spark's function", "this project"

# Columns are nullable, as in tables.
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
Taken = dict[tuple[str, str], dict[str, list[float]]]
"""Nanoseconds by (rows, format) and contender."""
PLAIN = {"json": "to_json({struct})", "csv": "to_csv({struct})", "avro": "to_avro({struct})"}


def measure(arguments: argparse.Namespace, folder: Path) -> list[Figure]:
    """Measure in a new JVM per round, because the times of the same code differ between JVMs."""
    taken: Taken = {}
    for number in range(1, arguments.rounds + 1):
        say(f"round {number} of {arguments.rounds}")
        with get_context("spawn").Pool(1) as process:
            for work, by_contender in process.apply(_round).items():
                for who, times in by_contender.items():
                    taken.setdefault(work, {}).setdefault(who, []).extend(times)
    found = []
    for (label, name), times_of in taken.items():
        compared = figures(f"encode as {name}: {label}", times_of, SPARK, {OURS: LIMITS[name]}, unit="ns")
        say(f"  {label:20} {name:5} {compared[1].ratio:.2f}x of Spark's function")
        found += compared
    return found


def _round() -> Taken:
    spark = session("local[1]")
    taken: Taken = {}
    for label, columns in ROWS.items():
        picked = ", ".join(f"if(id % 50 = 0, NULL, {expression}) AS {name}" for name, expression in columns.items())
        rows = spark.sql(f"SELECT id, {picked} FROM range(0, {ROWS_AT_ONCE}, 1, 1)").cache()
        rows.count()
        for name in PLAIN:
            expressions = {SPARK: plain(name, rows), OURS: ours(name, rows)}
            times: dict[str, list[float]] = {who: [] for who in expressions}
            for number in range(WARM_UP + TURNS):
                for who, expression in expressions.items():
                    nanoseconds = run(spark, rows.selectExpr(f"{expression} AS payload")).processor * 1e9 / ROWS_AT_ONCE
                    if number >= WARM_UP:
                        times[who].append(nanoseconds)
            taken[label, name] = times
        rows.unpersist()
    spark.stop()
    return taken


def plain(name: str, rows: DataFrame) -> str:
    struct = "named_struct(" + ", ".join(f"'{c}', {c}" for c in rows.columns) + ")"
    expression = PLAIN[name].format(struct=struct)
    return expression if name == "avro" else f"CAST({expression} AS BINARY)"


def ours(name: str, rows: DataFrame) -> str:
    fields = tuple(Field(f.name, f.name, f.dataType, f.name != "id") for f in rows.schema.fields)
    return formats.get(name).encode(Side("value", "benchmark", fields))
