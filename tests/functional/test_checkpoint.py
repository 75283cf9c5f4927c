"""Checkpoints of a run are freed when it ends, whether it succeeds or fails."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka.errors import GuardError
from dbt.adapters.upsert_kafka.spark import checkpoint, internals
from tests.tables import Table


def stored_rdds(spark: SparkSession) -> set[int]:
    return set(spark.sparkContext._jsc.getPersistentRDDs())


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("materialization", ["upsert_kafka", "kafka"])
def test_run_leaves_nothing_in_sparks_storage(table: Table, materialization: str, guarantee: str) -> None:
    table.materialization = materialization
    before = stored_rdds(table.spark)
    table.publish([(1, "ann"), (2, "bob")], sink_delivery_guarantee=guarantee)
    assert stored_rdds(table.spark) <= before
    with pytest.raises(GuardError):
        table.publish([(None, "ann")])
    assert stored_rdds(table.spark) <= before


def test_error_while_freeing_does_not_replace_the_error_of_the_run(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> Any:
        raise Py4JError("Spark has ended")

    monkeypatch.setattr(internals, "unpersist_checkpoint", fail)
    with pytest.raises(ZeroDivisionError), checkpoint.release_checkpoints():
        checkpoint.checkpoint(spark.range(1))
        1 / 0  # noqa: B018
