"""Python models: `def model(dbt, session)` runs in this process, on the Spark session of the model's connection.

Leaves to dbt how `dbt.ref()` and `dbt.config` get into the code, and to the materialization where the rows go.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from dbt.adapters.events.logging import AdapterLogger
from dbt_common.exceptions import DbtRuntimeError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from dbt.adapters.upsert_kafka import dbt_internals
from dbt.adapters.upsert_kafka.errors import UpsertKafkaError
from dbt.adapters.upsert_kafka.spark import shared_jvm, time_zone
from dbt.adapters.upsert_kafka.spark.restoring_session import RestoringSession

logger = AdapterLogger("upsert_kafka")


def rows(spark: SparkSession, name: str, code: str) -> DataFrame:
    """Return the DataFrame that the model returns; its rows are not computed yet."""
    shared_jvm.use_new_workers(spark)
    scope = {"__name__": name, "spark": spark}
    with _errors_with_line(name), _session_zone(spark):
        exec(compile(code, _file(name), "exec"), scope)
        return _call_model(spark, name, scope)


def run(spark: SparkSession, name: str, code: str) -> None:
    """Run code whose last line, `write_table(relation, file_format)`, writes what the model returns."""
    shared_jvm.use_new_workers(spark)
    scope: dict[str, Any] = {"__name__": name, "spark": spark}

    def write_table(relation: str, file_format: str | None) -> None:
        writer = _call_model(spark, name, scope).write
        if file_format is not None:
            writer = writer.format(file_format)
        if file_format == "delta":
            writer = writer.mode("overwrite").option("overwriteSchema", "true")
        else:
            # With Delta's catalog Spark cannot replace a table of another format.
            spark.sql(f"DROP TABLE IF EXISTS {relation}")
        if isinstance(spark, RestoringSession):
            spark.repeat(lambda: writer.saveAsTable(relation))
        else:
            writer.saveAsTable(relation)

    scope["write_table"] = write_table
    with _errors_with_line(name), _session_zone(spark):
        exec(compile(code, _file(name), "exec"), scope)


def _call_model(spark: SparkSession, name: str, scope: dict[str, Any]) -> DataFrame:
    returned = dbt_internals.call_python_model(scope, spark.table, spark)
    if not isinstance(returned, DataFrame) and hasattr(returned, "to_spark"):
        returned = returned.to_spark()
    elif type(returned).__module__.partition(".")[0] == "pandas":
        returned = spark.createDataFrame(returned)
    if not isinstance(returned, DataFrame):
        raise UpsertKafkaError(
            f"{name}: model() returned {type(returned).__name__}. Return a DataFrame of Spark, pandas or pandas on Spark."
        )
    return returned


def _session_zone(spark: SparkSession) -> AbstractContextManager[None]:
    return time_zone.as_process_zone(str(spark.conf.get(time_zone.SETTING)))


@contextmanager
def _errors_with_line(name: str) -> Iterator[None]:
    """Report the failing line of the user's code; errors of Spark and dbt pass through."""
    try:
        yield
    except (PySparkException, DbtRuntimeError):
        raise
    except Exception as error:  # the user's code may raise anything
        logger.debug(f"{name}: {error!r}")
        line = _line(error, _file(name))
        where = f" in line {line}" if line else ""
        raise UpsertKafkaError(f"{name}: the model's Python code failed{where}: {type(error).__name__}: {error}") from error


def _file(name: str) -> str:
    return f"<{name}.py>"


def _line(error: Exception, file: str) -> int | None:
    """The line of the model's code in which the innermost call failed."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
