"""What a run holds in Spark is given back when it ends, however it ends."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from dbt.adapters.upsert_kafka import held
from dbt.adapters.upsert_kafka.errors import GuardError
from tests.tables import Table


def kept(spark: SparkSession) -> set[int]:
    return set(spark.sparkContext._jsc.getPersistentRDDs())


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("materialization", ["upsert_kafka", "kafka"])
def test_a_run_leaves_nothing_in_sparks_storage(table: Table, materialization: str, guarantee: str) -> None:
    table.materialization = materialization
    before = kept(table.spark)
    table.publish([(1, "ann"), (2, "bob")], sink_delivery_guarantee=guarantee)
    assert kept(table.spark) <= before
    with pytest.raises(GuardError):
        table.publish([(None, "ann")])
    assert kept(table.spark) <= before


def test_a_spark_that_is_gone_does_not_hide_what_went_wrong(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: Any) -> Any:
        raise Py4JError("gone")

    monkeypatch.setattr(held, "_blocks", gone)
    with pytest.raises(ZeroDivisionError), held.until_done():
        held.hold(spark.range(1))
        1 / 0  # noqa: B018
