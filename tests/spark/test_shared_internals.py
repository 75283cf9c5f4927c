"""What a JVM that several processes share reports about the work of one process."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.spark import shared_internals
from dbt.adapters.upsert_kafka.spark.failures import SPARK_ERRORS

TAG = "dbt-test-of-shared-internals"
SLOW = "SELECT reflect('java.lang.Thread', 'sleep', 100L) FROM range(0, 12000, 1, 1)"


def test_statements_and_tasks_of_a_tag_are_seen_until_they_have_ended(spark: SparkSession) -> None:
    context, failures = spark.sparkContext, list[Exception]()
    gateway = context._gateway

    def run() -> None:
        context.addJobTag(TAG)
        try:
            spark.sql(SLOW).collect()
        except SPARK_ERRORS as error:
            failures.append(error)

    thread = InheritableThread(run)
    assert not shared_internals.has_tasks(gateway, TAG)
    thread.start()
    wait_until(lambda: shared_internals.has_tasks(gateway, TAG))
    assert not shared_internals.has_tasks(gateway, TAG[:-1])
    assert shared_internals.runs_statements(gateway)
    context.cancelJobsWithTag(TAG)
    thread.join()
    wait_until(lambda: not shared_internals.has_tasks(gateway, TAG))
    assert len(failures) == 1


def wait_until(is_true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < until, "did not happen in time"
        time.sleep(0.05)
