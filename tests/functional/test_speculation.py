"""spark.speculation, which runs a second copy of a slow task, is refused with every delivery guarantee."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.dbt_project import QUICK_SPARK, Project
from tests.services import list_topics

UPSERT = (
    "{{{{ config(materialized='upsert_kafka', unique_key='id', topic='{0}', sink_delivery_guarantee='{1}') }}}} select 1 as id"
)
APPEND = "{{{{ config(materialized='kafka', topic='{0}', sink_delivery_guarantee='{1}') }}}} select 1 as id"
GUARANTEES = ("none", "at-least-once", "exactly-once")


@pytest.mark.nightly
def test_speculation_is_refused_before_anything_is_written(
    dbt_project: Callable[..., Project], broker: str, schema_name: str
) -> None:
    models = {
        f"{kind}_{guarantee.replace('-', '_')}": (sql, guarantee)
        for kind, sql in (("upsert", UPSERT), ("append", APPEND))
        for guarantee in GUARANTEES
    }
    files = {f"models/{name}.sql": sql.format(f"{schema_name}.{name}", guarantee) for name, (sql, guarantee) in models.items()}
    outcome = dbt_project(files, spark={**QUICK_SPARK, "spark.speculation": "true"}).run("run")
    assert outcome.exit_code == 1
    for name in models:
        assert f"model {name}: spark.speculation is true" in outcome.message(name)
    assert not [topic for topic in list_topics(broker) if topic.startswith(schema_name)]
