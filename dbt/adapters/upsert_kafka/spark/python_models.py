"""Python models: `def model(dbt, session)` runs in this process, on the session of the model's own connection.

Leaves to dbt how `dbt.ref()` and `dbt.config` come into the code, and to the materialization what becomes of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dbt.adapters.events.logging import AdapterLogger
from dbt_common.exceptions import DbtRuntimeError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka.errors import UpsertKafkaError

logger = AdapterLogger("upsert_kafka")


def rows(spark: SparkSession, name: str, code: str) -> DataFrame:
    """What the model returns, not yet run."""
    scope = {"__name__": name, "spark": spark}
    with _told(name):
        exec(compile(code, _file(name), "exec"), scope)
        return _returned(spark, name, scope)


def run(spark: SparkSession, name: str, code: str) -> None:
    """Run code whose last line writes what the model returns: `write_table(relation, file_format)`."""
    scope: dict[str, Any] = {"__name__": name, "spark": spark}

    def write_table(relation: str, file_format: str | None) -> None:
        writer = _returned(spark, name, scope).write
        if file_format is not None:
            writer = writer.format(file_format)
        if file_format == "delta":
            writer = writer.mode("overwrite").option("overwriteSchema", "true")
        else:
            # Where Delta is loaded, Spark replaces no table of another format.
            spark.sql(f"DROP TABLE IF EXISTS {relation}")
        writer.saveAsTable(relation)

    scope["write_table"] = write_table
    with _told(name):
        exec(compile(code, _file(name), "exec"), scope)


def _returned(spark: SparkSession, name: str, scope: dict[str, Any]) -> DataFrame:
    found = scope["model"](scope["dbtObj"](spark.table), spark)
    if not isinstance(found, DataFrame) and hasattr(found, "to_spark"):
        found = found.to_spark()
    elif type(found).__module__.partition(".")[0] == "pandas":
        found = spark.createDataFrame(found)
    if not isinstance(found, DataFrame):
        raise UpsertKafkaError(
            f"{name}: model() returned {type(found).__name__}: return a DataFrame of Spark, pandas or pandas on Spark"
        )
    return found


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Tell an error of the user's code with its line; those of Spark are told as everywhere else."""
    try:
        yield
    except (PySparkException, DbtRuntimeError):
        raise
    except Exception as error:  # the user's own code may raise anything
        logger.debug(f"{name}: {error!r}")
        line = _line(error, _file(name))
        where = f" in line {line}" if line else ""
        raise UpsertKafkaError(f"{name}: the model's Python code failed{where}: {type(error).__name__}: {error}") from error


def _file(name: str) -> str:
    return f"<{name}.py>"


def _line(error: Exception, file: str) -> int | None:
    """Where in the model it was: the innermost line that is the model's own."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
