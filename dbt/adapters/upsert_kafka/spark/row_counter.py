"""The rows that the queries of one dbt connection have read or written so far, for `progress`.

Spark's status store has them per stage, also of running tasks, as of the executors' last heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dbt.adapters.events.logging import AdapterLogger
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.spark import internals
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS
from dbt.adapters.upsert_kafka.spark.internals import StageRows

logger = AdapterLogger("upsert_kafka")

Answer = TypeVar("Answer")


class TagRowCounter:
    """Counts the rows of the jobs with a tag. An error ends the count, not the run: Spark may just be stopping."""

    def __init__(self, tag: str) -> None:
        self._tag = tag
        self._spark: SparkSession | None = None
        self._last_job_before = -1

    def attach(self, spark: SparkSession | None) -> None:
        """Count in this session; None to stop."""
        self._spark = spark
        self.restart()

    def restart(self) -> None:
        spark = self._spark
        jobs = None if spark is None else self._tried(lambda: internals.jobs_with_tag(spark, self._tag))
        self._last_job_before = max(jobs or [-1])

    def read(self) -> int | None:
        jobs = self._stages_of_jobs()
        return None if jobs is None else sum(stage.input_rows for stages in jobs for stage in stages)

    def written(self) -> int | None:
        jobs = self._stages_of_jobs()
        return None if jobs is None else jobs[-1][-1].rows if jobs and jobs[-1] else 0

    def _stages_of_jobs(self) -> list[list[StageRows]] | None:
        """The stages of each job since `restart`, in the order in which they run; None if unknown."""
        spark, last = self._spark, self._last_job_before
        if spark is None:
            return None
        return self._tried(
            lambda: [
                internals.rows_of_stages(spark, job) for job in sorted(internals.jobs_with_tag(spark, self._tag)) if job > last
            ]
        )

    def _tried(self, ask: Callable[[], Answer]) -> Answer | None:
        try:
            return ask()
        except (*SPARK_ERRORS, OSError) as error:
            logger.debug(f"Rows are not counted any more: {error!r}")
            self._spark = None
            return None
